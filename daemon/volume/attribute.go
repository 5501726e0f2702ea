package volume

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// recordAttribute has the text of a record a second time, in an attribute of the record's own file.
// Versions before
// 0.2.0 wrote it and did not wait for the file's data, which a power cut could take then. This version only
// reads it, for a host that lost power under one of those: 0.3.0 need not (docs/decisions.md).
const recordAttribute = "user.hostpath-provisioner.record"

// attributeMax bounds the text that was put into an attribute, in bytes.
const attributeMax = 2 << 10

// cutShort: a power cut leaves the beginning of a file, which can be nothing, and zeros for what
// was not written. Anything else is an edit, or damage, and the attribute is not used.
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

// repair writes the data of a record again that a power cut took. A crash on the way leaves a
// beginning of it, as the power cut did.
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
