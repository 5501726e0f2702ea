// Package inline is how the CSI node service, which may not write in a pool, has the daemon make
// the inline volumes of pods, and tells it that one was unpublished.
//
// The daemon listens on no socket. It sends one end of each of some pairs of connected sockets to
// the node service's socket, as for a pause (package pause), and works on what comes on its own
// ends: one request at a time on each, in JSON, with one reply. So the one who may send requests is
// the process that root gave that socket. An end that is closed ends the pair, and the daemon sends
// another one; each request can be repeated.
//
// Host finds out whether a pod has such a volume, without the API.
//
// The package will not decide anything, and it knows no pool.
package inline
