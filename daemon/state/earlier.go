package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Directory is the state directory of the packages. It is below one that holds nothing else, so that the
// one which systemd gives to the service's user, with everything in it, cannot hold a pool.
const Directory = "/var/lib/hostpath-provisioner/state"

// earlierPools is where versions before this layout kept what they remembered: in the directory above.
// It is "" for a directory of another name, above which nothing is ours.
func earlierPools(dir string) string {
	if filepath.Base(dir) != filepath.Base(Directory) {
		return ""
	}
	return filepath.Join(filepath.Dir(dir), "pools")
}

func earlierFile(dir, pool string) string {
	pools := earlierPools(dir)
	if pools == "" {
		return ""
	}
	return filepath.Join(pools, pool+".json")
}

// TakeOver moves what an earlier version remembered into dir. What dir has already is newer and stays.
// A crash between two files leaves some in either place: Remembered finds both, and the next call goes on.
func TakeOver(dir string) error {
	pools := earlierPools(dir)
	if pools == "" {
		return nil
	}
	entries, err := os.ReadDir(pools)
	if errors.Is(err, fs.ErrNotExist) || len(entries) == 0 && err == nil {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		pool, is := strings.CutSuffix(e.Name(), ".json")
		if file, err := fileOf(dir, pool); is && err == nil && e.Type().IsRegular() {
			if err := takeOver(dir, filepath.Join(pools, e.Name()), file); err != nil {
				return err
			}
		}
	}
	return syncDir(pools)
}

func takeOver(dir, from, to string) error {
	if err := makeDir(dir, filepath.Dir(to)); err != nil {
		return err
	}
	if _, err := os.Lstat(to); err == nil {
		return os.Remove(from)
	}
	// Copied: in a service StateDirectory= is a mount of its own, out of which nothing is renamed (EXDEV).
	// A crash after the copy leaves both, of which the new one counts and the old one goes next time.
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := replace(to, text); err != nil {
		return err
	}
	return os.Remove(from)
}
