package harness

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Findings are what was found wrong with the product, by kind. The zero value has none. Any
// goroutine may add to them.
type Findings struct {
	mu  sync.Mutex
	all map[string][]string
}

// Kinds of findings that several programs have.
const (
	Unsettled      = "claims not settled"
	VolumesLeft    = "volume objects without a claim"
	EntriesLeft    = "directories, records, staging or trash left"
	EntriesMissing = "directories or records missing"
	FilesLost      = "files of volumes lost"
	DaemonEnded    = "daemons that ended"
	NothingProven  = "conditions of the proof that were not met"
)

// Fault adds something that the product did wrong.
func (f *Findings) Fault(kind, format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[string][]string{}
	}
	f.all[kind] = append(f.all[kind], fmt.Sprintf(format, args...))
}

// Blame adds an error as a fault, and reports whether there was one.
func (f *Findings) Blame(kind string, err error) bool {
	if err != nil {
		f.Fault(kind, "%v", err)
	}
	return err != nil
}

// Merge adds what was found elsewhere, with a prefix.
func (f *Findings) Merge(other *Findings, prefix string) {
	for kind, all := range other.all {
		for _, one := range all {
			f.Fault(kind, "%s%s", prefix, one)
		}
	}
}

// Count returns the number of findings of these kinds, or of all if none is given.
func (f *Findings) Count(kinds ...string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for kind, all := range f.all {
		if len(kinds) == 0 || slices.Contains(kinds, kind) {
			n += len(all)
		}
	}
	return n
}

// shown is how many findings of a kind are printed.
const shown = 5

// print prints a line for each kind, those with no findings too, and the first few findings.
func (f *Findings) print(w io.Writer, kinds []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for kind := range f.all {
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	fmt.Fprintln(w, "wrong")
	for _, kind := range kinds {
		all := f.all[kind]
		fmt.Fprintf(w, "  %-56s %6d\n", kind, len(all))
		for _, what := range all[:min(len(all), shown)] {
			fmt.Fprintln(w, "    "+strings.ReplaceAll(what, "\n", "\n    "))
		}
		if len(all) > shown {
			fmt.Fprintf(w, "    and %d more\n", len(all)-shown)
		}
	}
}

// String is what was found, for an error's text.
func (f *Findings) String() string {
	var b strings.Builder
	f.print(&b, nil)
	return b.String()
}

// Machine is a line that tells on which machine something was measured, and how busy it was.
func Machine() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err.Error()
	}
	load, _ := os.ReadFile("/proc/loadavg")
	return fmt.Sprintf("%d processors, Linux %s, load %s at the start", runtime.NumCPU(), unix.ByteSliceToString(name.Release[:]), strings.Join(strings.Fields(string(load))[:min(3, len(strings.Fields(string(load))))], " "))
}
