package treecopy

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/tree"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// What is in a stream behind its head: one item for each entry, in the order of a walk. An item is
// four bytes of length and JSON. There is no path in it, only the name in the directory that is
// entered: so nothing of a stream can lead out of it, or through a link.
//
//	dir      a directory is entered
//	up       it is left, and gets its attributes; that of the top is the last item
//	file     a file; its data follows, in pieces
//	kept     a file of an earlier stream, with this key; it did not change since
//	link     a further name of the file that had this key
//	symlink  FIFO  each as it is
const (
	itemDir     = "dir"
	itemUp      = "up"
	itemFile    = "file"
	itemKept    = "kept"
	itemLink    = "link"
	itemSymlink = "symlink"
	itemFIFO    = "fifo"
)

// itemMax is the longest item, in bytes: attributes of an entry are at most some 700 KiB.
const itemMax = 1 << 20

// valueMax is the longest value of an attribute, in bytes (limits.h XATTR_SIZE_MAX).
const valueMax = 64 << 10

// item is one entry.
type item struct {
	Kind   string      `json:"kind"`
	Name   []byte      `json:"name,omitempty"`
	Mode   uint32      `json:"mode,omitempty"`
	UID    uint32      `json:"uid,omitempty"`
	GID    uint32      `json:"gid,omitempty"`
	Atime  [2]int64    `json:"atime,omitzero"` // seconds, ns
	Mtime  [2]int64    `json:"mtime,omitzero"`
	Ctime  [2]int64    `json:"ctime,omitzero"` // of a file
	Size   int64       `json:"size,omitempty"`
	Key    uint64      `json:"key,omitempty"` // of a file: its inode, or a number of its own in a subvolume
	Target []byte      `json:"target,omitempty"`
	Attrs  []attribute `json:"attrs,omitempty"`
}

type attribute struct {
	Name  []byte `json:"name"`
	Value []byte `json:"value"`
}

// WriteItem writes v as one item.
func WriteItem(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(text) > itemMax {
		return fmt.Errorf("its attributes take %d bytes, at most %d go into a stream",
			len(text), itemMax)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

// ReadItem reads one item of at most limit bytes.
func ReadItem(r io.Reader, limit int, v any) error {
	var length [4]byte
	if err := readFull(r, length[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(length[:])
	if int64(size) > int64(min(limit, itemMax)) {
		return fmt.Errorf("%w: an item of %d bytes", ErrStream, size)
	}
	text := make([]byte, size)
	if err := readFull(r, text); err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrStream, err)
	}
	return nil
}

// readFull reads what has to be there: the end of the stream is too early.
func readFull(r io.Reader, p []byte) error {
	_, err := io.ReadFull(r, p)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends within the tree", ErrStream)
	}
	return err
}

func itemOf(kind string, e tree.Entry, st unix.Stat_t) item {
	return item{
		Kind: kind, Name: []byte(e.Name), Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid,
		Atime: [2]int64{st.Atim.Sec, st.Atim.Nsec}, Mtime: [2]int64{st.Mtim.Sec, st.Mtim.Nsec},
	}
}

// check refuses what no entry of a volume is, wrapped as ErrStream.
func (i item) check() error {
	bad := func(what string) error {
		return fmt.Errorf("%w: %s of %.100q", ErrStream, what, i.Name)
	}
	name := string(i.Name)
	top := i.Kind == itemUp && name == "."
	switch {
	case !top && (name == "" || name == "." || name == ".." || len(name) > record.NameMax ||
		strings.ContainsAny(name, "/\x00")):
		return bad("the name")
	case i.Mode > 0o7777, i.UID == math.MaxUint32, i.GID == math.MaxUint32:
		return bad("the mode or the owner")
	case i.Size < 0, !nanoseconds(i.Atime[1]), !nanoseconds(i.Mtime[1]), !nanoseconds(i.Ctime[1]):
		return bad("the size or a time")
	case bytes.ContainsRune(i.Target, 0), (i.Kind == itemSymlink) != (len(i.Target) > 0):
		return bad("the target")
	}
	for _, a := range i.Attrs {
		if !sendable(string(a.Name)) || len(a.Value) > valueMax {
			return bad(fmt.Sprintf("attribute %.100q", a.Name))
		}
	}
	return nil
}

func nanoseconds(n int64) bool { return 0 <= n && n < 1e9 }

func (i item) stat() unix.Stat_t {
	return unix.Stat_t{Mode: i.Mode, Uid: i.UID, Gid: i.GID,
		Atim: unix.Timespec{Sec: i.Atime[0], Nsec: i.Atime[1]},
		Mtim: unix.Timespec{Sec: i.Mtime[0], Nsec: i.Mtime[1]}}
}

// sendable reports whether an attribute goes into a stream: those that a process in a container can
// set. Trusted ones the daemon's own copies have neither; of security, a file's capabilities are
// what its set-user-ID bit is.
func sendable(name string) bool {
	switch name {
	case "system.posix_acl_access", "system.posix_acl_default", "security.capability":
		return true
	}
	return strings.HasPrefix(name, "user.") && len(name) <= record.NameMax &&
		!strings.Contains(name, "\x00")
}
