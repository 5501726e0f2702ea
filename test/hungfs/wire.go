package hungfs

import "encoding/binary"

// Op is a request of the FUSE protocol (enum fuse_opcode in linux/fuse.h).
type Op uint32

// The requests that a pool's life is made of; others get ENOSYS.
const (
	Lookup   Op = 1
	forget   Op = 2
	Getattr  Op = 3
	Setattr  Op = 4
	Mkdir    Op = 9
	Unlink   Op = 10
	Rmdir    Op = 11
	Rename   Op = 12
	Link     Op = 13
	Open     Op = 14
	Read     Op = 15
	Write    Op = 16
	Statfs   Op = 17
	release  Op = 18
	Fsync    Op = 20
	Setxattr Op = 21
	Getxattr Op = 22
	flush    Op = 25
	initOp   Op = 26
	Opendir  Op = 27
	Readdir  Op = 28
	closedir Op = 29
	Fsyncdir Op = 30
	Create   Op = 35
	interrup Op = 36
	destroy  Op = 38
	forgets  Op = 42
	Rename2  Op = 45
)

// Sizes of the fixed parts, all of them structs of linux/fuse.h.
const (
	inHeader  = 40
	outHeader = 16
	maxWrite  = 64 << 10
)

var order = binary.NativeEndian

// request is one message of the kernel.
type request struct {
	op     Op
	unique uint64
	node   uint64
	body   []byte
}

func parseRequest(b []byte) (request, bool) {
	if len(b) < inHeader {
		return request{}, false
	}
	return request{
		op: Op(order.Uint32(b[4:])), unique: order.Uint64(b[8:]), node: order.Uint64(b[16:]),
		body: append([]byte(nil), b[inHeader:]...),
	}, true
}

func (r request) u32(at int) uint32 { return order.Uint32(r.body[at:]) }
func (r request) u64(at int) uint64 { return order.Uint64(r.body[at:]) }

type attr struct {
	Ino, Size, Blocks, Atime, Mtime, Ctime         uint64
	AtimeNsec, MtimeNsec, CtimeNsec                uint32
	Mode, Nlink, UID, GID, Rdev, Blksize, AttrFlag uint32
}

// Names and attributes are valid for no time at all, so that the kernel always asks.
type entryOut struct {
	Node, Generation, EntryValid, AttrValid uint64
	EntryNsec, AttrNsec                     uint32
	Attr                                    attr
}

type attrOut struct {
	Valid      uint64
	Nsec, Zero uint32
	Attr       attr
}

type initOut struct {
	Major, Minor, MaxReadahead, Flags uint32
	MaxBackground, Congestion         uint16
	MaxWrite, TimeGran                uint32
	Rest                              [9]uint32
}

type statfsOut struct {
	Blocks, Bfree, Bavail, Files, Ffree uint64
	Bsize, Namelen, Frsize, Zero        uint32
	Spare                               [6]uint32
}

func encode(v any) []byte {
	b, err := binary.Append(nil, order, v)
	if err != nil {
		panic(err) // only for types without a fixed size
	}
	return b
}

func dirent(ino, next uint64, kind uint32, name string) []byte {
	b := order.AppendUint64(nil, ino)
	b = order.AppendUint64(b, next)
	b = order.AppendUint32(b, uint32(len(name)))
	b = order.AppendUint32(b, kind)
	b = append(b, name...)
	return append(b, make([]byte, -len(b)&7)...)
}
