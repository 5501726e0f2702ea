// Package confine restricts this process to what the daemon needs. Landlock denies every file
// except those of its pools, its configuration and its own directories. A seccomp filter denies
// system calls and arguments that Landlock does not see. Neither can be undone, and children
// inherit both.
//
// The package does not read the configuration: its caller passes the paths. On a kernel without
// Landlock it installs the filter alone, and Confined.ABI is 0.
package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Rules are what stays allowed. A path that does not exist is left out, and stays denied when it is
// created later.
type Rules struct {
	// Work are directories: everything beneath them except programs, links and special files.
	Work []string
	// Copy are those of Work in which trees of volumes are copied: symbolic links and FIFOs may be
	// made, and blocks shared.
	Copy    []string
	Read    []string // directories and files: reading
	Write   []string // files, and the files in directories: reading and writing what is there
	Execute []string // directories: reading, and running programs

	SetGroupID bool // chmod(2) may set that bit
	// LookUnder: CAP_SYS_ADMIN is used. open_tree(2) may clone mounts, to look at what they cover,
	// and limits of projects be set.
	LookUnder bool
	// Label: SELinux is on. setxattr(2) labels what cannot be opened, such as links; its policy
	// says where.
	Label    bool
	Abstract bool // abstract sockets of other processes may be reached
}

// Confined is what a process is confined to.
type Confined struct {
	// ABI of Landlock that is in force (landlock(7)); 0 if it is not.
	ABI  int      `json:"abi"`
	Work []string `json:"work,omitempty"`
	Read []string `json:"read,omitempty"`
	Off  bool     `json:"off,omitempty"` // by the configuration
	// Failed is the error because of which the restrictions may not be in force, "" for none.
	Failed string `json:"failed,omitempty"`
	// SetGroupID is that of the rules.
	SetGroupID bool `json:"setGroupID,omitempty"`
	// Copy is that of the rules.
	Copy []string `json:"copyIn,omitempty"`
	// Unfiltered: the kernel has no filter of system calls.
	Unfiltered bool `json:"unfiltered,omitempty"`

	files    map[string]os.FileInfo
	existing []string // of Work
}

// Rights of landlock(7).
const (
	reading landlock.AccessFSSet = ll.AccessFSReadFile | ll.AccessFSReadDir
	writing landlock.AccessFSSet = ll.AccessFSReadFile | ll.AccessFSReadDir | ll.AccessFSWriteFile | ll.AccessFSTruncate
	running landlock.AccessFSSet = reading | ll.AccessFSExecute
	working landlock.AccessFSSet = writing | ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile | ll.AccessFSRefer
	copying landlock.AccessFSSet = ll.AccessFSMakeSym | ll.AccessFSMakeFifo
	onFiles landlock.AccessFSSet = ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSExecute
)

// leastABI is the first version with the right to rename from one directory into another (Linux 5.19). ABI 1 denies
// that altogether, and a volume is created in one directory and renamed into another.
const leastABI = 2

// ScopingABI is the first that denies signals to, and abstract sockets of, other processes.
// What the ones before it do not deny otherwise, truncate(2) and ioctl(2) of devices, the filter
// of system calls does.
const ScopingABI = 6

// ABI returns the version of Landlock of this kernel, 0 if there is none that can be used. known is
// false where a filter of system calls refused the question, as that of a unit does with EPERM.
func ABI() (abi int, known bool) {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil || abi < leastABI {
		return 0, !errors.Is(err, unix.EPERM)
	}
	return abi, true
}

// self keeps the dentry of /proc/self, and with it the inode that the rule refers to: a dentry that
// is dropped under memory pressure comes back with another inode.
var self *os.File

// Process confines all threads of this process. No thread may be inside a system call that does not
// return: on kernels before ABI 8 each thread applies the rules itself.
func Process(r Rules) (*Confined, error) {
	filtered, err := filterCalls(r)
	if err != nil {
		return nil, fmt.Errorf("the filter of system calls: %w", err)
	}
	if self == nil {
		self, _ = os.Open("/proc/self") // without /proc there is no such rule either
	}
	abi, _ := ABI()
	c := &Confined{ABI: abi, SetGroupID: r.SetGroupID, Copy: r.Copy, files: map[string]os.FileInfo{}}
	c.Unfiltered = !filtered
	if c.ABI == 0 {
		return c, nil
	}
	c.Work, c.Read = r.Work, slices.Concat(r.Read, r.Write, r.Execute)
	c.remember()
	r.Work, r.Copy = c.existing, both(c.existing, r.Copy)
	// The handled rights are those of ABI 7, which is tested. ABI 9 also denies datagrams to
	// systemd.
	config := landlock.Config{HandledAccessFS: landlock.V7.HandledAccessFS, Scoped: landlock.V7.Scoped}
	if r.Abstract {
		config.Scoped &^= ll.ScopeAbstractUnixSocket
	}
	return c, config.BestEffort().Restrict(r.landlock()...)
}

func (r Rules) landlock() []landlock.Rule {
	var all []landlock.Rule
	for _, of := range []struct {
		paths  []string
		rights landlock.AccessFSSet
	}{
		{r.Work, working}, {r.Copy, copying},
		{r.Read, reading}, {r.Write, writing}, {r.Execute, running},
	} {
		for _, path := range of.paths {
			rights := of.rights
			if info, err := os.Stat(path); err != nil {
				continue
			} else if !info.IsDir() {
				rights &= onFiles
			}
			all = append(all, landlock.PathAccess(rights, path).IgnoreIfMissing())
		}
	}
	return all
}

// remember keeps the identity of the files: a rule refers to a file, and not to another one that
// replaces it.
func (c *Confined) remember() {
	for _, path := range slices.Concat(c.Work, c.Read) {
		if info, err := os.Stat(path); err == nil {
			c.files[path] = info
		}
	}
	for _, path := range c.Work {
		if c.files[path] != nil {
			c.existing = append(c.existing, path)
		}
	}
}

// both returns the elements of one list that are also in another one.
func both(one, another []string) []string {
	without := func(s string) bool { return !slices.Contains(another, s) }
	return slices.DeleteFunc(slices.Clone(one), without)
}

// Has reports whether a directory existed when the process was confined.
func (c *Confined) Has(path string) bool { return slices.Contains(c.existing, path) }

// Replaced returns the first path whose file was allowed and was replaced by one that is not; ""
// for none.
func (c *Confined) Replaced(paths ...string) string {
	for _, path := range paths {
		was, known := c.files[path]
		now, err := os.Stat(path)
		if known && err == nil && !os.SameFile(was, now) && !c.readable(filepath.Dir(path)) {
			return path
		}
	}
	return ""
}

func (c *Confined) readable(path string) bool { return covered(path, c.Read) || covered(path, c.Work) }

// Lacks returns the first path of the rules that the process may not reach; "" for none.
func (c *Confined) Lacks(r Rules) string {
	if c == nil || c.ABI == 0 {
		return ""
	}
	for _, path := range r.Work {
		if !covered(path, c.Work) {
			return path
		}
	}
	for _, path := range slices.Concat(r.Read, r.Write, r.Execute) {
		if !c.readable(path) {
			return path
		}
	}
	return ""
}

func covered(path string, by []string) bool {
	return slices.ContainsFunc(by, func(dir string) bool {
		return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
	})
}

// String returns the sentence for the log and for status.
func (c *Confined) String() string {
	switch {
	case c == nil:
		return "not confined"
	case c.Failed != "":
		return "not confined: " + c.Failed
	case c.Off:
		return "not confined by Landlock, as configured"
	case c.ABI == 0:
		return "not confined: Landlock is not available on this kernel"
	case c.Unfiltered:
		return c.landlocked() + "; this kernel has no filter of system calls"
	default:
		return c.landlocked()
	}
}

func (c *Confined) landlocked() string {
	return fmt.Sprintf("confined by Landlock (ABI %d) to %s", c.ABI, strings.Join(c.Work, ", "))
}
