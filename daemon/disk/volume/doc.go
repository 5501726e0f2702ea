// Package volume is the store of one pool: it makes, moves, archives and removes the directories of
// volumes, and keeps a record of each.
//
// Everything it knows stands below the pool's own directory:
//
//	<pool>/<directory>                          a volume, as a pod sees it
//	<pool>/.hostpath-provisioner/pool.json      the marker (package hostcheck reads it)
//	<pool>/.hostpath-provisioner/volumes/       a record for each volume: <pv>.json
//	<pool>/.hostpath-provisioner/staging/       volumes that are being made: <pv>
//	<pool>/.hostpath-provisioner/trash/         volumes that are being removed: <pv>, whole; <pv>~, whose files are going
//	<pool>/.hostpath-provisioner/archive/       volumes that were archived, with their records
//
// A record is the proof that a directory is ours. It is on stable storage before the directory is
// visible, and it goes after the directory went. While staging/<pv> exists, a directory of the
// volume's name in the pool is foreign: that is how a crash while losing a race for a name
// is told from one after winning it.
//
// In a shared pool daemons of other hosts may be at work, too. There nothing is staged: shared.go
// says how a volume is made instead.
//
// Every call opens the pool anew, compares it with the identity that was checked
// (ErrDirectoryReplaced if it is another directory; nothing was touched then), works beneath that
// descriptor and closes it: an open directory would pin the mount. Every call can be repeated,
// after an error and after a crash.
//
// The package will not judge a host (hostcheck does), decide what is to be done (daemon/rules/plan does),
// follow a symbolic link, cross a mount, or touch a directory that has no record.
package volume
