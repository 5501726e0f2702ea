// Package treecopy copies the tree of one volume into an empty directory of the same filesystem.
// The source belongs to a tenant, who may have made it as nasty as possible and may be writing to
// it meanwhile. The destination is the daemon's alone until the copy is complete.
//
// Package tree walks the source and says what that refuses. Each entry is opened by one name
// beneath the walk's descriptor, looked at, and copied as what it was at that moment:
//
//	regular files              FICLONE, or copy_file_range(2) between SEEK_DATA and SEEK_HOLE       TestLikeCp
//	symbolic links             made anew, never followed                                            TestLikeCp, TestHostile
//	FIFOs                      made anew, never opened in the source                                TestLikeCp, TestHostile
//	hard links                 one file again, by inode and time of birth                           TestLikeCp, TestReusedInode
//	sockets, devices           left out and counted                                                 TestHostile
//	mounts, also of files      left out and counted                                                 TestHostile
//	what goes or changes       left out or copied as it was, and counted                            TestVanishing
//	directories moved meanwhile, below tree.Held others: an error, as parts may be missing          TestMoved
//	immutable, append-only     copied without the flag: the volume's new owner can clear no flag    TestHostile
//	files of any size          holes stay holes; a full copy has a limit                            TestHostile, TestLimit
//	trees of any depth, width  constant memory, two descriptors besides the walk's                  TestHostile
//
// Owner, mode, times in ns, POSIX ACLs and extended attributes are kept. Those that the process may
// not set are counted (Copied.Lost): a process without CAP_SYS_ADMIN does not see trusted
// attributes at all. A label of SELinux is not copied: what is made has the label of the calling
// thread (selinux.CreatedAs).
//
// Each file of a reflink copy is the file at one moment. The set of files is not of one moment
// while the source changes, which Last notices.
//
// Write writes a tree to a stream, and Read makes one of a stream that anybody may have written
// (frames.go, items.go): of other nodes' volumes, and of backups. The same is kept, but for what no
// process in a container can set, and what is written to meanwhile is an error.
//
//	cut off, damaged, another order    checksums, each with the one before    TestStreamDamaged
//	names that lead elsewhere, links   no paths; each name beneath a descriptor, EXCL    TestStreamHostile
//	attributes of the host's           user, ACLs and capabilities alone      TestStreamHostile
//	more than the head said            entries, bytes of data, sizes of items TestStreamHostile
//
// The package will not make anything durable, remove what a failed copy leaves, or decide what may
// be copied.
package treecopy
