// Package progress counts the files and bytes of a piece of work that takes as long as there are
// files, and estimates how long it still takes.
//
// It does not know what the work is, it prints nothing, and it remembers no earlier pace: an
// estimate is by the pace from the beginning on.
package progress

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// Total is how much there is to do, as far as that is known: 0 is not known.
type Total struct{ Files, Bytes uint64 }

// Work counts what was done. Its methods may be called by many goroutines. A nil Work counts
// nothing.
type Work struct {
	total        Total
	began        time.Time // with the monotonic clock
	files, bytes atomic.Uint64
}

// Begin returns a Work that begins now.
func Begin(total Total) *Work { return &Work{total: total, began: time.Now()} }

// Add counts files, which are entries of any kind, and bytes of their data.
func (w *Work) Add(files, bytes uint64) {
	if w != nil {
		w.files.Add(files)
		w.bytes.Add(bytes)
	}
}

// Now returns how far the work is.
func (w *Work) Now() State {
	return State{Files: w.files.Load(), Bytes: w.bytes.Load(), Total: w.total, Took: time.Since(w.began)}
}

// State is how far a piece of work was at one moment.
type State struct {
	Files, Bytes uint64
	Total        Total
	Took         time.Duration // so far
}

// bytesPerFile is how many bytes of data take as long as one more file, roughly.
const bytesPerFile = 64 << 10

// soonest is how long a piece of work has to last before its pace says something.
const soonest = time.Second

// Part returns which part is done, from 0 to 1. It is not known without the number of files, and
// where more was done than was expected: files came meanwhile.
func (s State) Part() (part float64, known bool) {
	done, total := float64(s.Files), float64(s.Total.Files)
	if s.Total.Bytes > 0 {
		done += float64(s.Bytes) / bytesPerFile
		total += float64(s.Total.Bytes) / bytesPerFile
	}
	if s.Total.Files == 0 || done > total {
		return 0, false
	}
	return done / total, true
}

// Left estimates how long the work still takes.
func (s State) Left() (left time.Duration, known bool) {
	part, known := s.Part()
	if !known || part == 0 || part == 1 || s.Took < soonest {
		return 0, false
	}
	left = time.Duration(float64(s.Took) * (1 - part) / part)
	if left < time.Minute {
		return left.Round(time.Second), true
	}
	return left.Round(time.Minute), true
}

// String returns a State in words: "20 of 80 files, 1.5 GiB, 25%, about 3m0s left".
func (s State) String() string {
	text := fmt.Sprint(s.Files)
	part, known := s.Part()
	if known {
		text += fmt.Sprint(" of ", s.Total.Files)
	}
	text += " files"
	if s.Bytes > 0 {
		text += ", " + words.Size(s.Bytes)
	}
	if known {
		text += fmt.Sprintf(", %d%%", int(100*part))
	}
	if left, known := s.Left(); known {
		text += fmt.Sprintf(", about %v left", left)
	}
	return text
}
