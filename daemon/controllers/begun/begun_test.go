package begun

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		if s.Has("k") || s.Since("k") != 0 {
			t.Error("nothing was begun")
		}
		if !s.Begin("k") || s.Begin("k") || !s.Has("k") || s.Has("other") {
			t.Error("it begins once")
		}
		time.Sleep(time.Minute) // of the bubble's clock
		if s.Begin("k"); s.Since("k") != time.Minute {
			t.Errorf("begun %s ago, want a minute", s.Since("k"))
		}
		s.Begin("purge/b")
		s.Begin("purge/a")
		if got := s.Under("purge/"); !slices.Equal(got, []string{"a", "b"}) || s.Under("x") != nil {
			t.Errorf("under purge/: %q", got)
		}
		s.End("purge/a")
		s.End("purge/b")
		if s.End("k"); s.Has("k") || s.Since("k") != 0 || len(s.times) != 0 {
			t.Error("it ended, and is remembered")
		}
		if !s.Begin("k") {
			t.Error("it cannot begin again")
		}
	})
}

// Of many workers one begins.
func TestSetIsForManyWorkers(t *testing.T) {
	var s Set
	begun := make(chan bool, 100)
	for range cap(begun) {
		go func() { begun <- s.Begin("k") }()
	}
	n := 0
	for range cap(begun) {
		if <-begun {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d workers began, want one", n)
	}
}

// What ended and begins again counts from its new begin, and ends without those beside it.
func TestSetBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		s.End("k") // of nothing
		s.Begin("k")
		s.Begin("k/longer")
		s.Begin("of k/")
		time.Sleep(time.Hour)
		s.End("k")
		s.Begin("k")
		time.Sleep(time.Second)
		if s.Since("k") != time.Second || s.Since("k/longer") != time.Hour+time.Second {
			t.Errorf("begun %s and %s ago, want a second, and an hour more", s.Since("k"), s.Since("k/longer"))
		}
		if got := s.Under("k/"); !slices.Equal(got, []string{"longer"}) {
			t.Errorf("under k/: %q", got)
		}
	})
}

// What began long ago counts from then, also if it is known already.
func TestSetResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		s.Resume("k", time.Minute)
		if s.Begin("k") || s.Since("k") != time.Minute {
			t.Errorf("begun %s ago, want a minute", s.Since("k"))
		}
		s.Resume("k", 0)
		if s.Since("k") != 0 {
			t.Errorf("begun %s ago, want now", s.Since("k"))
		}
	})
}

// A note is of what was begun, and ends with it.
func TestSetNotes(t *testing.T) {
	var s Set
	s.Note("k", "of nothing")
	if got := s.Noted("k"); got != "" {
		t.Errorf("noted %q of what was not begun", got)
	}
	s.Begin("k")
	s.Note("k", "first")
	s.Note("k", "second")
	if got := s.Noted("k"); got != "second" {
		t.Errorf("noted %q, want the last word", got)
	}
	s.End("k")
	s.Begin("k")
	if got := s.Noted("k"); got != "" || len(s.notes) != 0 {
		t.Errorf("noted %q of what ended", got)
	}
}
