// Package state keeps what a host remembers across restarts: which filesystem each pool was prepared
// on, and that one daemon at a time works with it.
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
	if err := makeDir(dir, filepath.Dir(file)); err != nil {
		return err
	}
	return replace(file, text)
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
	text, err := os.ReadFile(file)
	if earlier := earlierFile(dir, pool); errors.Is(err, os.ErrNotExist) && earlier != "" {
		file = earlier
		text, err = os.ReadFile(file)
	}
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

// Forget removes what is remembered of a pool. Nothing remembered is no error.
func Forget(dir, pool string) error {
	file, err := fileOf(dir, pool)
	if err != nil {
		return err
	}
	if earlier := earlierFile(dir, pool); earlier != "" { // first: it would be found again
		if err := os.Remove(earlier); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	err = os.Remove(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(file))
}

func fileOf(dir, pool string) (string, error) {
	if len(validation.IsDNS1123Label(pool)) > 0 {
		return "", fmt.Errorf("%q is not a pool's name", pool)
	}
	return filepath.Join(dir, "pools", pool+".json"), nil
}

// makeDir makes the state directory, where no service manager did, and one below it.
func makeDir(dir, below string) error {
	if err := os.MkdirAll(below, 0o700); err != nil {
		return err
	}
	return syncDir(dir)
}

// replace writes a file aside and renames it into place. A crash before the rename leaves the old
// file and a .new that the next call overwrites; after it, the new file.
func replace(file string, text []byte) error {
	aside := file + ".new"
	f, err := os.OpenFile(aside, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(aside, file); err != nil {
		return err
	}
	return syncDir(filepath.Dir(file))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
