package volume

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// cephQuota is the attribute that limits a directory of CephFS: bytes as decimal digits, 0 for no limit
// (docs.ceph.com, CephFS quotas).
const cephQuota = "ceph.quota.max_bytes"

// limit sets a directory's quota, if one is asked for.
func (s *session) limit(dir int, bytes int64) error {
	if bytes <= 0 {
		return nil
	}
	err := openat.Retry(func() error {
		return unix.Fsetxattr(dir, cephQuota, []byte(strconv.FormatInt(bytes, 10)), 0)
	})
	s.pool.crashPoint("quota set")
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: setting %s: %w", ErrNoQuota, cephQuota, err)
	}
	return wrap("setting "+cephQuota, err)
}
