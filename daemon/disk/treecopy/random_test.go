package treecopy

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	accessACL  = "system.posix_acl_access"
	defaultACL = "system.posix_acl_default"
)

// What a later pass makes in a directory that has a default ACL by then has the ACL of its source,
// or none.
func TestAgainInheritsNothing(t *testing.T) {
	for _, fstype := range []string{"xfs", "btrfs"} {
		t.Run(fstype, func(t *testing.T) {
			w := newTwice(t, on(t, fstype))
			for _, dir := range []string{"", "d1", "d3"} {
				must(t, unix.Setxattr(w.at(dir), defaultACL, []byte(acl), 0))
			}
			w.first()
			must(t, unix.Removexattr(w.at("d3"), defaultACL), os.Chmod(w.at("d1/f1"), 0o640),
				os.WriteFile(w.at("d3/secret"), nil, 0o640), os.Rename(w.at("d0"), w.at("d1/d0")),
				unix.Mkfifo(w.at("d3/second fifo"), 0o640), os.Chown(w.at("d1/d0/f0"), 12, 13))
			w.again()
		})
	}
}

// A directory for the copy that has a default ACL, for instance of the pool's, hands none down.
func TestCopyInheritsNothing(t *testing.T) {
	each(t, func(t *testing.T, dir string, o Options) {
		plenty(t, filepath.Join(dir, "source"))
		must(t, unix.Setxattr(dir, defaultACL, []byte(acl), 0))
		_, err := copyTree(t, dir, o)
		must(t, err)
		compare(t, describe(t, filepath.Join(dir, "copy")), describe(t, filepath.Join(dir, "source")))
	})
}

// Three passes over a tree to which anything happens between them make a copy like it.
func TestPassesRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for _, fstype := range []string{"xfs", "btrfs"} {
		base := on(t, fstype)
		for round := range uint64(12) {
			t.Run(fmt.Sprint(fstype, round), func(t *testing.T) {
				r := random{newTwice(t, base), rand.New(rand.NewPCG(seed, round))}
				r.some(20)
				r.first()
				r.some(20)
				_, err := Again(t.Context(), r.from, r.to, r.o)
				must(t, err)
				if round%2 > 0 {
					must(t, r.o.Seen.Clear(t.Context(), r.to, func() error { return nil }))
				}
				r.some(20)
				r.again()
			})
		}
	}
}

// random is a tree to which something random happens.
type random struct {
	*twice
	*rand.Rand
}

func (r random) some(n int) {
	r.Helper()
	for range n {
		r.one()
	}
}

// entry is a random path of the tree, the top's own among them if top.
func (r random) entry(top bool) string {
	var all []string
	must(r.twice, filepath.WalkDir(r.at(""), func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	}))
	if !top {
		all = all[1:]
	}
	if len(all) == 0 {
		return r.at("nothing")
	}
	return all[r.IntN(len(all))]
}

// place is a name in a random directory, which may be taken.
func (r random) place() string {
	dir := r.entry(true)
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		dir = filepath.Dir(dir)
	}
	return filepath.Join(dir, fmt.Sprint("f", r.IntN(40)))
}

// put writes a file. A FIFO that nothing reads is ENXIO.
func (r random) put(path string, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK, mode)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(f, r.Uint64())
	return errors.Join(err, f.Close())
}

// one does one thing, which may be refused: a directory into itself, a link to a directory.
func (r random) one() {
	r.Helper()
	mode, list := os.FileMode(r.IntN(0o1000)), []string{accessACL, defaultACL}[r.IntN(2)]
	var err error
	switch r.IntN(14) {
	case 0:
		err = r.put(r.place(), mode)
	case 1:
		err = os.Mkdir(r.place(), mode)
	case 2:
		err = unix.Mkfifo(r.place(), uint32(mode))
	case 3:
		err = os.Symlink(fmt.Sprint(r.Uint64()), r.place())
	case 4:
		err = os.Link(r.entry(false), r.place())
	case 5:
		err = os.Rename(r.entry(false), r.place())
	case 6:
		err = unix.Renameat2(unix.AT_FDCWD, r.entry(false), unix.AT_FDCWD, r.entry(false), unix.RENAME_EXCHANGE)
	case 7:
		err = os.Remove(r.entry(false))
	case 8:
		err = os.RemoveAll(r.entry(false))
	case 9:
		err = os.Lchown(r.entry(true), r.IntN(3), r.IntN(3))
	case 10:
		err = unix.Fchmodat(unix.AT_FDCWD, r.entry(true), uint32(mode), unix.AT_SYMLINK_NOFOLLOW)
	case 11:
		err = unix.Lsetxattr(r.entry(true), "user.x", []byte{byte(r.IntN(256))}, 0)
	case 12:
		err = unix.Lsetxattr(r.entry(true), list, []byte(acl), 0)
	case 13:
		err = unix.Lremovexattr(r.entry(true), list)
	}
	for _, refused := range []error{unix.EINVAL, unix.EEXIST, unix.ENOTEMPTY, unix.ENOENT, unix.ENODATA, unix.EPERM,
		unix.EACCES, unix.EOPNOTSUPP, unix.ENOTDIR, unix.EISDIR, unix.EXDEV, unix.ENXIO} {
		if errors.Is(err, refused) {
			return
		}
	}
	must(r.twice, err)
}
