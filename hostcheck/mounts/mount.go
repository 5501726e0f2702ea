// Package mounts reads the mounts that this process sees: which ones there are,
// which one a path lies on, whether that changed, which directory an open descriptor is, and what
// lies under a mount point.
//
// It will not mount, unmount or change anything, it will not judge what it finds, and it will not
// follow a symbolic link. Nothing it holds open keeps a filesystem from being unmounted.
package mounts

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Mount is one line of /proc/self/mountinfo (proc_pid_mountinfo(5)), its octal escapes decoded.
type Mount struct {
	ID           int    `json:"id"`     // the kernel uses it again after an unmount
	Parent       int    `json:"parent"` // ID of the mount on which Point lies; its own ID for the topmost
	Major        uint32 `json:"major"`  // st_dev of files here; for btrfs and network filesystems not a real device
	Minor        uint32 `json:"minor"`
	Root         string `json:"root"`               // the directory of the filesystem that is seen at Point
	Point        string `json:"point"`              // relative to the process's root directory
	Options      string `json:"options"`            // of this mount
	Optional     string `json:"optional,omitempty"` // propagation: "shared:1 master:2"
	FSType       string `json:"fsType"`
	Source       string `json:"source"` // "/dev/sda1", "server:/export"; may be empty
	SuperOptions string `json:"superOptions"`
}

// ReadOnly reports whether the mount or its whole filesystem is read-only, as the table was read. A
// filesystem that goes read-only by itself, after an error, does not change the table's poll mark.
func (m Mount) ReadOnly() bool {
	return hasOption(m.Options, "ro") || hasOption(m.SuperOptions, "ro")
}

func hasOption(list, name string) bool {
	for option := range strings.SplitSeq(list, ",") {
		if option == name {
			return true
		}
	}
	return false
}

// Parse reads a whole mount table. A line that is not one of mountinfo's is an error that names it:
// a table with a hole in it could put a path on the wrong mount.
func Parse(r io.Reader) ([]Mount, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("mount table: %w", err)
	}
	return parse(string(data))
}

func parse(data string) ([]Mount, error) {
	table := make([]Mount, 0, strings.Count(data, "\n"))
	number := 0
	for line := range strings.Lines(data) {
		number++
		m, err := parseLine(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("mount table: line %d: %w", number, err)
		}
		table = append(table, m)
	}
	return table, nil
}

// parseLine splits at single spaces: a source may be the empty string, which a split at white space
// would swallow (TestParse "empty source").
func parseLine(line string) (Mount, error) {
	head, tail, ok := strings.Cut(line, " - ")
	f, t := strings.SplitN(head, " ", 7), strings.SplitN(tail, " ", 3)
	if !ok || len(f) < 6 || len(t) < 3 {
		return Mount{}, fmt.Errorf("%q is not a line of mountinfo", line)
	}
	m := Mount{
		Root: unescape(f[3]), Point: unescape(f[4]), Options: unescape(f[5]),
		FSType: unescape(t[0]), Source: unescape(t[1]), SuperOptions: unescape(t[2]),
	}
	if len(f) == 7 {
		m.Optional = f[6]
	}
	if err := m.numbers(f[0], f[1], f[2]); err != nil {
		return Mount{}, fmt.Errorf("%q: %w", line, err)
	}
	if !strings.HasPrefix(m.Point, "/") {
		return Mount{}, fmt.Errorf("%q: mount point %q is not absolute", line, m.Point)
	}
	return m, nil
}

func (m *Mount) numbers(id, parent, device string) (err error) {
	if m.ID, err = strconv.Atoi(id); err != nil {
		return err
	}
	if m.Parent, err = strconv.Atoi(parent); err != nil {
		return err
	}
	major, minor, _ := strings.Cut(device, ":")
	a, err := strconv.ParseUint(major, 10, 32)
	if err != nil {
		return err
	}
	b, err := strconv.ParseUint(minor, 10, 32)
	m.Major, m.Minor = uint32(a), uint32(b)
	return err
}

// unescape decodes the kernel's \ooo (mangle in fs/proc_namespace.c). A backslash that does not
// begin three octal digits of one byte stands for itself.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
