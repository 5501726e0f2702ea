package tree

import (
	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// growth tells a large tree from one that grows as fast as it is walked. Which of both costs a
// system call for each entry, of a large tree alone.
type growth struct {
	most    int   // entries that are not looked at, and that may have come
	began   int64 // in seconds since 1970, when the walk did
	visited int
	came    int                      // of those that were looked at
	entered map[mounts.Identity]bool // at most so many
}

// endless reports whether two of three entries came while the tree was walked. One that is gone by
// now came and went.
func (g *growth) endless(at Entry) bool {
	if g.visited++; g.visited <= g.most {
		return false
	}
	if at.twice() || g.isNew(at) {
		g.came++
	}
	return g.came > g.most && g.came/2 > g.visited/3
}

// isNew reports whether an entry was made after the walk began, or a file got the name. What has
// further names gets a change time with each that a purge removes, and a directory when that moves
// it up.
func (g *growth) isNew(at Entry) bool {
	var st unix.Statx_t
	const mask = unix.STATX_BTIME | unix.STATX_CTIME | unix.STATX_NLINK | unix.STATX_TYPE
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if unix.Statx(at.Dir, at.Name, flags, mask, &st) != nil {
		return true
	}
	born := st.Mask&unix.STATX_BTIME != 0 && st.Btime.Sec > g.began
	directory := st.Mode&unix.S_IFMT == unix.S_IFDIR
	return born || !directory && st.Nlink == 1 && st.Ctime.Sec > g.began
}

// again reports whether a directory was entered before: it was moved to where the walk came later.
func (g *growth) again(dir int) bool {
	if g.visited < g.most {
		return false
	}
	id, err := mounts.IdentityOf(dir)
	if err != nil || g.entered[id] {
		return err == nil
	}
	if g.entered == nil {
		g.entered = map[mounts.Identity]bool{}
	}
	if len(g.entered) < g.most {
		g.entered[id] = true
	}
	return false
}

// twice reports whether the entry is in a directory that was entered before.
func (e Entry) twice() bool { return e.depth > 0 && e.w.levels[e.depth-1].twice }
