// Package state keeps what a host remembers across restarts: which filesystem each pool was
// prepared on, and that one daemon at a time works with it.
//
// It knows nothing of disks and does not judge: whether a marker is the right one is hostcheck's to
// say. What it remembers can be made again by `prepare`; volumes do not depend on it.
package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// Directory is the state directory of the packages. It is below one that holds nothing else, so
// that the one which systemd gives to the service's user, with everything in it, cannot hold a
// pool.
const Directory = "/var/lib/hostpath-provisioner/state"

// Remember keeps a pool's marker in dir/pools/<pool>.json, in place of an earlier one. When it
// returns nil the file is on stable storage, whole.
func Remember(dir, pool string, m hostcheck.Marker) error {
	file, err := fileOf(dir, pool)
	if err != nil {
		return err
	}
	if m.Pool != pool {
		return fmt.Errorf("the marker of pool %q is not one of pool %q", m.Pool, pool)
	}
	text, err := hostcheck.EncodeMarker(m)
	if err != nil {
		return err
	}
	d, err := openDir(dir, pools, 0o700, true)
	if err != nil {
		return err
	}
	defer d.Close()
	return replaceIn(d, filepath.Base(file), text, 0o600, true)
}

// Remembered is the id of the marker that is remembered for a pool, "" if there is none.
func Remembered(dir, pool string) (id string, err error) {
	m, err := Recall(dir, pool)
	return m.ID, err
}

// Recall is the marker that is remembered for a pool, zero if there is none. A file that cannot be
// understood is an error: taking it for none would let another filesystem take the pool's place.
func Recall(dir, pool string) (hostcheck.Marker, error) {
	file, err := fileOf(dir, pool)
	if err != nil {
		return hostcheck.Marker{}, err
	}
	text, err := read(dir, pools, filepath.Base(file))
	if errors.Is(err, os.ErrNotExist) {
		return hostcheck.Marker{}, nil
	}
	if err != nil {
		return hostcheck.Marker{}, err
	}
	m, err := hostcheck.DecodeMarker(text)
	if err != nil {
		return m, fmt.Errorf("%s: %w", file, err)
	}
	if m.Pool != pool {
		return hostcheck.Marker{}, fmt.Errorf("%s: a marker of pool %q", file, m.Pool)
	}
	return m, nil
}

// pools is the directory of what is remembered, right in the state directory.
const pools = "pools"

func fileOf(dir, pool string) (string, error) {
	if len(validation.IsDNS1123Label(pool)) > 0 {
		return "", fmt.Errorf("%q is not a pool's name", pool)
	}
	return filepath.Join(dir, pools, pool+".json"), nil
}
