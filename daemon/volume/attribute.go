package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// recordAttribute has the text of a record a second time, in an attribute of the record's own file.
const recordAttribute = "user.hostpath-provisioner.record"

// attributeMax bounds the text that is put into an attribute, in bytes: ext4 keeps all attributes of a
// file in one block (ext4(5)), and xfs puts longer ones beside its log.
const attributeMax = 2 << 10

// draft is a record under its new name, just written.
type draft struct {
	fd          int
	inAttribute bool // its text is in recordAttribute, too
}

// writeAttribute gives the text of a new record to the filesystem's log. Where the order of changes is kept
// (ordered), attributes are in the log as names are, so that a reader that finds a later name after a power
// cut finds the text: the write of the file's data, one for each volume, need not be waited for. It
// returns false where the attribute cannot be had: ENOSPC is also
// ext4's word for one that does not fit (xattr(7)).
func writeAttribute(fd int, text []byte) bool {
	if len(text) > attributeMax {
		return false
	}
	return openat.Retry(func() error { return unix.Fsetxattr(fd, recordAttribute, text, 0) }) == nil
}

// readRecord reads the record of a volume. What it cannot decode is ErrDamaged, unless a power cut took the data and
// the attribute has it.
func readRecord(dir int, name, pv string) (record.Record, error) {
	text, err := readFile(dir, name, record.MaxSize)
	if err != nil {
		return record.Record{}, err
	}
	r, err := decodeVolume(text, pv)
	if err == nil || errors.Is(err, record.ErrNewer) {
		return r, err
	}
	whole, lost := attributeText(dir, name)
	if lost != nil || !cutShort(text, whole) {
		return r, err
	}
	return decodeVolume(whole, pv)
}

// decodeVolume refuses what is recorded as another thing than a volume: nothing of this package is right for it.
func decodeVolume(text []byte, pv string) (record.Record, error) {
	r, err := record.Decode(text, pv)
	if err == nil && r.Kind != record.Volume {
		return record.Record{}, fmt.Errorf("%w: it is of a %q, and %w", record.ErrDamaged, r.Kind, record.ErrNewer)
	}
	return r, err
}

// cutShort: a power cut leaves the beginning of a file, which can be nothing, and zeros for what was
// not written. Anything else is an edit, or damage, and the attribute is not used.
func cutShort(text, whole []byte) bool {
	written := bytes.TrimRight(text, "\x00")
	return len(text) <= len(whole) && len(written) < len(whole) && bytes.HasPrefix(whole, written)
}

// attributeText reads a record's attribute; ENODATA if it has none.
func attributeText(dir int, name string) (text []byte, err error) {
	fd, err := openFile(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n, text := 0, make([]byte, attributeMax)
	err = openat.Retry(func() (err error) { n, err = unix.Fgetxattr(fd, recordAttribute, text); return err })
	return text[:max(n, 0)], err
}

// repairAll looks at each record, once for each mount: power cuts come before it.
func (s *session) repairAll(ctx context.Context, files map[string]bool) error {
	if done := s.pool.repaired.Load(); done != nil && *done == s.id || !s.pool.ordered.of(s.id, s.root) {
		return nil
	}
	all := true
	for _, name := range sorted(files) {
		pv, is := strings.CutSuffix(name, recordSuffix)
		if !is || record.CheckPV(pv) != nil {
			continue
		}
		_, err := s.sweepOne(ctx, pv, s.repair)
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			all = false // the attribute is still there
		} else if err != nil {
			return err
		}
	}
	if all {
		id := s.id
		s.pool.repaired.Store(&id)
	}
	return nil
}

// repair writes the data of a record again that a power cut took. A crash on the way leaves a beginning
// of it, as the power cut did.
func (s *session) repair(pv string) (bool, error) {
	volumes, name := s.dirs[volumesDir], pv+recordSuffix
	text, err := readFile(volumes, name, record.MaxSize)
	if err != nil {
		return false, nil // gone meanwhile, or none of ours: List shows it
	}
	if _, err := record.Decode(text, pv); !errors.Is(err, record.ErrDamaged) {
		return false, nil
	}
	whole, err := attributeText(volumes, name)
	if err != nil || !cutShort(text, whole) {
		return false, nil
	}
	fd, err := openFile(volumes, name, unix.O_WRONLY)
	if err != nil {
		return false, wrap("repairing a record", err)
	}
	defer unix.Close(fd)
	if err := writeAll(fd, whole); err != nil {
		return false, wrap("repairing a record", err)
	}
	s.pool.crashPoint("record repaired")
	return true, nil
}
