// Package everynode looks after this node's directory of a volume of scope every-node, which has a
// directory on each node. The node that makes the object makes its own directory first; the others
// make theirs when they see the object. Each node detaches its own directory; one of them, after a
// staggered delay, writes the tombstone and removes the object. A node that was off meanwhile
// applies the tombstone.
//
// The rules are in plan (ForPart, ForVolume, ForRecord). It will not remove a directory because an
// object is absent: only a released object, or a tombstone for the same claim, proves that the
// claim is gone. It will not make a directory a second time that was removed here. Files are
// removed by the pool's purge, later.
package everynode
