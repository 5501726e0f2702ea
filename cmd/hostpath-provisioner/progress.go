package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/progress"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

const (
	// progressEvery is between two lines that say how far a command is.
	progressEvery = 5 * time.Second
	// drawEvery is between two looks at it, and between two drawings of the bar on a terminal.
	drawEvery = 100 * time.Millisecond
	// barWidth is the widest bar, and narrowBar the narrowest, in columns.
	barWidth, narrowBar = 30, 5
)

// shownWork says on stderr how far a command is that visits many files: a bar on a terminal, else a
// line now and then.
type shownWork struct {
	to      io.Writer
	columns int // of the terminal, 0: it is none
	work    *progress.Work
	said    time.Time
}

func (p *program) show(total progress.Total) *shownWork {
	s := &shownWork{to: p.stderr, work: progress.Begin(total), said: time.Now()}
	if os.Getenv("TERM") != "dumb" {
		s.columns = terminalOf(p.stderr).columns
	}
	return s
}

// during works on one volume. The bar is gone when it returns.
func (s *shownWork) during(what string, work func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		work()
	}()
	every := time.NewTicker(drawEvery)
	defer every.Stop()
	for {
		select {
		case <-done:
			if s.columns > 0 {
				fmt.Fprint(s.to, "\r\x1b[K")
			}
			return
		case now := <-every.C:
			s.say(what, now)
		}
	}
}

func (s *shownWork) say(what string, now time.Time) {
	switch {
	case s.columns > 0:
		fmt.Fprintf(s.to, "\r%s\x1b[K", barOf(what, s.work.Now(), s.columns))
	case now.Sub(s.said) >= progressEvery:
		s.said = now
		fmt.Fprintf(s.to, "%s: %v\n", what, s.work.Now())
	}
}

// barOf is one line of a terminal, which leaves its last column free: a character there may wrap.
func barOf(what string, s progress.State, columns int) string {
	text, bar := fmt.Sprint(what, ": ", s), ""
	part, known := s.Part()
	if room := min(columns-1-len(" []")-len(text), barWidth); known && room >= narrowBar {
		full := int(part * float64(room))
		bar = " [" + strings.Repeat("#", full) + strings.Repeat("-", room-full) + "]"
	}
	line := []rune(text + bar)
	return string(line[:min(len(line), max(columns-1, 0))])
}

// filesOf is how many files volumes have: by their projects, or else what is in use on a filesystem
// that is the pool's alone, without what projects of others count.
func (p *program) filesOf(pool config.Pool, r hostcheck.Report, volumes []record.Record,
	takes []quota.Usage) progress.Total {
	of := map[uint32]bool{}
	for _, v := range volumes {
		of[v.ProjectID] = true
	}
	var own, others uint64
	for _, u := range takes {
		switch {
		case u.ID == 0:
		case of[u.ID]:
			own += u.Inodes
		default:
			others += u.Inodes
		}
	}
	switch inUse := r.Inodes - min(r.Inodes, r.InodesFree); {
	case len(takes) > 0 && !of[0]:
		return progress.Total{Files: own}
	case daemon.Alone(pool, r.Device, nil) && !p.shares(pool):
		return progress.Total{Files: inUse - min(inUse, others)}
	}
	return progress.Total{}
}

// shares reports whether the configuration has another pool on the same mount point.
func (p *program) shares(pool config.Pool) bool {
	return slices.ContainsFunc(p.loaded.Pools, func(other config.Pool) bool {
		return other.Name != pool.Name && other.MountPoint == pool.MountPoint
	})
}
