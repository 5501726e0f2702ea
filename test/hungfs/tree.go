package hungfs

import (
	"bytes"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// node is a file or directory in memory.
type node struct {
	ino      uint64
	mode     uint32
	uid, gid uint32
	data     []byte
	children map[string]*node
	attrs    map[string][]byte
}

type tree struct {
	nodes  map[uint64]*node
	last   uint64
	quotas bool
}

func newTree() *tree {
	t := &tree{nodes: map[uint64]*node{}}
	t.add(unix.S_IFDIR | 0o700)
	return t
}

func (t *tree) add(mode uint32) *node {
	t.last++
	n := &node{ino: t.last, mode: mode}
	if mode&unix.S_IFMT == unix.S_IFDIR {
		n.children = map[string]*node{}
	}
	t.nodes[n.ino] = n
	return n
}

func (n *node) attr() attr {
	return attr{
		Ino: n.ino, Size: uint64(len(n.data)), Mode: n.mode, Nlink: 1 + uint32(len(n.children)),
		UID: n.uid, GID: n.gid, Blksize: 4096,
	}
}

func (n *node) entry() []byte { return encode(entryOut{Node: n.ino, Attr: n.attr()}) }

// names splits the strings at the end of a request, each closed by a zero byte.
func names(b []byte) []string {
	var all []string
	for part := range bytes.SplitSeq(bytes.TrimSuffix(b, []byte{0}), []byte{0}) {
		all = append(all, string(part))
	}
	return all
}

// perform does what a request asks for.
func (t *tree) perform(r request) ([]byte, unix.Errno) {
	n := t.nodes[r.node]
	if n == nil && r.op != initOp {
		return nil, unix.ESTALE
	}
	switch r.op {
	case initOp:
		return encode(initOut{Major: 7, Minor: 31, MaxWrite: maxWrite}), 0
	case Getattr:
		return encode(attrOut{Attr: n.attr()}), 0
	case Setattr:
		n.set(r)
		return encode(attrOut{Attr: n.attr()}), 0
	case Statfs:
		return encode(statfsOut{Blocks: 1 << 20, Bfree: 1 << 20, Bavail: 1 << 20, Files: 1 << 20, Ffree: 1 << 20, Bsize: 4096, Namelen: 255, Frsize: 4096}), 0
	case Open, Opendir:
		return make([]byte, 16), 0
	case Setxattr, Getxattr:
		return t.attribute(n, r)
	case Read:
		return cut(n.data, r.u64(8), r.u32(16)), 0
	case Write:
		return n.write(r.u64(8), r.body[40:]), 0
	case Readdir:
		return n.list(int(r.u64(8)), int(r.u32(16))), 0
	case release, flush, closedir, Fsync, Fsyncdir, destroy:
		return nil, 0
	}
	return t.change(n, r)
}

// attribute takes and gives back extended attributes of one kind: those that limit a directory.
func (t *tree) attribute(n *node, r request) ([]byte, unix.Errno) {
	if !t.quotas {
		return nil, unix.ENOSYS
	}
	name, value, _ := bytes.Cut(r.body[8:], []byte{0})
	if !bytes.HasPrefix(name, []byte("ceph.quota.")) {
		return nil, unix.EOPNOTSUPP
	}
	if r.op == Setxattr {
		if n.attrs == nil {
			n.attrs = map[string][]byte{}
		}
		n.attrs[string(name)] = bytes.Clone(value[:r.u32(0)])
		return nil, 0
	}
	value, set := n.attrs[string(name)]
	switch {
	case !set:
		return nil, unix.ENODATA
	case r.u32(0) == 0:
		return encode([2]uint32{uint32(len(value))}), 0
	default:
		return value, 0
	}
}

// change serves the requests that concern a name in the directory n.
func (t *tree) change(n *node, r request) ([]byte, unix.Errno) {
	skip := map[Op]int{Mkdir: 8, Create: 16, Rename: 8, Link: 8, Rename2: 16}[r.op]
	list := names(r.body[skip:])
	child := n.children[list[0]]
	switch r.op {
	case Lookup:
		if child == nil {
			return nil, unix.ENOENT
		}
		return child.entry(), 0
	case Mkdir, Create:
		return t.make(n, r, list[0])
	case Link:
		if child != nil {
			return nil, unix.EEXIST
		}
		n.children[list[0]] = t.nodes[r.u64(0)]
		return n.children[list[0]].entry(), 0
	case Unlink, Rmdir:
		if child == nil {
			return nil, unix.ENOENT
		}
		if len(child.children) > 0 {
			return nil, unix.ENOTEMPTY
		}
		delete(n.children, list[0])
		return nil, 0
	case Rename, Rename2:
		to := t.nodes[r.u64(0)]
		if r.op == Rename2 && r.u32(8) != 0 && to.children[list[1]] != nil {
			return nil, unix.EEXIST
		}
		delete(n.children, list[0])
		to.children[list[1]] = child
		return nil, 0
	}
	return nil, unix.ENOSYS
}

func (t *tree) make(n *node, r request, name string) ([]byte, unix.Errno) {
	if n.children[name] != nil {
		return nil, unix.EEXIST
	}
	kind, mode, rest := uint32(unix.S_IFDIR), uint32(0), []byte(nil)
	if r.op == Mkdir {
		mode = r.u32(0) &^ r.u32(4)
	} else {
		kind, mode, rest = unix.S_IFREG, r.u32(4)&^r.u32(8), make([]byte, 16)
	}
	child := t.add(kind | mode&0o7777)
	n.children[name] = child
	return append(child.entry(), rest...), 0
}

// set takes mode, owner and size from struct fuse_setattr_in.
func (n *node) set(r request) {
	valid := r.u32(0)
	if valid&1 != 0 {
		n.mode = n.mode&unix.S_IFMT | r.u32(68)&0o7777
	}
	if valid&2 != 0 {
		n.uid = r.u32(76)
	}
	if valid&4 != 0 {
		n.gid = r.u32(80)
	}
	if valid&8 != 0 {
		n.data = append(n.data, make([]byte, r.u64(16))...)[:r.u64(16)]
	}
}

func (n *node) write(at uint64, data []byte) []byte {
	if grow := int(at) + len(data) - len(n.data); grow > 0 {
		n.data = append(n.data, make([]byte, grow)...)
	}
	return encode([2]uint32{uint32(copy(n.data[at:], data))})
}

func (n *node) list(from, size int) []byte {
	var out []byte
	for i, name := range slices.Sorted(maps.Keys(n.children)) {
		child := n.children[name]
		entry := dirent(child.ino, uint64(i+1), child.mode>>12&15, name)
		if i < from {
			continue
		}
		if len(out)+len(entry) > size {
			break
		}
		out = append(out, entry...)
	}
	return out
}

func cut(data []byte, at uint64, size uint32) []byte {
	if at >= uint64(len(data)) {
		return nil
	}
	return data[at:min(at+uint64(size), uint64(len(data)))]
}
