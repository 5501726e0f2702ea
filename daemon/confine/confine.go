// Package confine takes from this process what the daemon never needs: with Landlock every file but
// those of its pools, its configuration and its own directories, with a seccomp filter the calls and
// arguments that Landlock does not see. Neither can be undone; both are inherited by children.
//
// It does not know the configuration: which paths there are to be, the daemon says. On a kernel without
// Landlock it does the rest and reports that.
package confine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// Rules are what stays allowed. A path that does not exist is left out, and stays forbidden when it is
// made later.
type Rules struct {
	Work    []string // directories: everything below them, but programs, devices and sockets
	Read    []string // directories and files: reading
	Write   []string // files, and the files in directories: reading and writing what is there
	Execute []string // directories: reading, and running programs

	SetGroupID  bool // chmod(2) may set that bit
	LookUnder   bool // mounts may be cloned, to look at what they cover
	UnixStreams bool // connections to sockets in the filesystem may be made
	Abstract    bool // abstract sockets of other processes may be reached
}

// Confined is what a process is confined to.
type Confined struct {
	// ABI of Landlock that is in force (landlock(7)); 0 if it is not.
	ABI  int      `json:"abi"`
	Work []string `json:"work,omitempty"`
	Read []string `json:"read,omitempty"`
	Off  bool     `json:"off,omitempty"` // by the configuration
	// Failed is why nothing is known to be in force, "" if something is.
	Failed string `json:"failed,omitempty"`
	// SetGroupID is that of the rules.
	SetGroupID bool `json:"setGroupID,omitempty"`
	files      map[string]os.FileInfo
	there      []string // of Work
}

// Rights of landlock(7).
const (
	reading landlock.AccessFSSet = ll.AccessFSReadFile | ll.AccessFSReadDir
	writing landlock.AccessFSSet = ll.AccessFSReadFile | ll.AccessFSReadDir | ll.AccessFSWriteFile | ll.AccessFSTruncate
	running landlock.AccessFSSet = reading | ll.AccessFSExecute
	working landlock.AccessFSSet = writing | ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile | ll.AccessFSRefer
	onFiles landlock.AccessFSSet = ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSExecute
)

// leastABI knows the right to rename from one directory into another (Linux 5.19), which ABI 1 takes
// from a confined process altogether: a volume is made aside and renamed.
const leastABI = 2

// ABI is the version of Landlock that this kernel has and that can be used, 0 for none.
func ABI() int {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil || abi < leastABI {
		return 0
	}
	return abi
}

// self keeps the dentry of /proc/self, and with it the inode that the rule is about: one that was dropped
// under memory pressure would come back as another inode.
var self *os.File

// Process confines this process, all its threads. No thread may be inside a call that does not return:
// on kernels before ABI 8 each has to apply the rules itself.
func Process(r Rules) (*Confined, error) {
	if err := filterCalls(r); err != nil {
		return nil, fmt.Errorf("the filter of system calls: %w", err)
	}
	if self == nil {
		self, _ = os.Open("/proc/self") // without /proc there is no such rule either
	}
	c := &Confined{ABI: ABI(), SetGroupID: r.SetGroupID, files: map[string]os.FileInfo{}}
	if c.ABI == 0 {
		return c, nil
	}
	c.Work, c.Read = r.Work, slices.Concat(r.Read, r.Write, r.Execute)
	c.remember()
	r.Work = c.there
	// What is handled is that of ABI 7, which is tested: ABI 9 also forbids datagrams to systemd.
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
	}{{r.Work, working}, {r.Read, reading}, {r.Write, writing}, {r.Execute, running}} {
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

// remember keeps what the paths were: a rule is about the file, and one that is put in its place is
// another.
func (c *Confined) remember() {
	for _, path := range slices.Concat(c.Work, c.Read) {
		if info, err := os.Stat(path); err == nil {
			c.files[path] = info
		}
	}
	for _, path := range c.Work {
		if c.files[path] != nil {
			c.there = append(c.there, path)
		}
	}
}

// Has reports whether a directory was there when the process was confined.
func (c *Confined) Has(path string) bool { return slices.Contains(c.there, path) }

// Replaced is a file that may be read and has another in its place since, which may not; "" for none.
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

// Lacks is a path of the rules that is outside of what the process is confined to; "" for none.
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

// String is the sentence for people.
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
	default:
		return fmt.Sprintf("confined by Landlock (ABI %d) to %s", c.ABI, strings.Join(c.Work, ", "))
	}
}
