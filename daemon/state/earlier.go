package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Directory is the state directory of the packages. It is below one that holds nothing else, so
// that the one which systemd gives to the service's user, with everything in it, cannot hold a
// pool.
const Directory = "/var/lib/hostpath-provisioner/state"

// earlierPools is where versions before this layout kept what they remembered: in the directory
// above. It is "" for a directory of another name, above which nothing is ours.
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

// TakeOver moves what an earlier version remembered into dir. What dir has already is newer and
// stays. A crash between two files leaves some in either place: Remembered finds both, and the next
// call goes on.
func TakeOver(dir string) error {
	if earlierPools(dir) == "" {
		return nil
	}
	from, err := openDir(filepath.Dir(dir), pools, 0, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer from.Close()
	names, err := from.Readdirnames(-1)
	if err != nil || len(names) == 0 {
		return err
	}
	to, err := openDir(dir, pools, 0o700, true)
	if err != nil {
		return err
	}
	defer to.Close()
	for _, name := range names {
		pool, is := strings.CutSuffix(name, ".json")
		if _, err := fileOf(dir, pool); !is || err != nil {
			continue
		}
		if err := takeOver(from, to, name); err != nil && !errors.Is(err, ErrNotPlain) {
			return err
		}
	}
	return from.Sync()
}

func takeOver(from, to *os.File, name string) error {
	var there unix.Stat_t
	if unix.Fstatat(int(to.Fd()), name, &there, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return unlink(from, name)
	}
	// Copied: in a service StateDirectory= is a mount of its own, out of which nothing is renamed
	// (EXDEV). A crash after the copy leaves both, of which the new one counts and the old one goes
	// next time.
	text, err := readIn(from, name)
	if err != nil {
		return err
	}
	if err := replaceIn(to, name, text, 0o600, true); err != nil {
		return err
	}
	return unlink(from, name)
}
