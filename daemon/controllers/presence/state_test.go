package presence

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func pools(n int) (all []Pool) {
	for i := range n {
		all = append(all, Pool{Name: fmt.Sprint("pool-", i), State: PoolClosed, Reason: "NotMounted",
			Message: strings.Repeat("m", 500), Since: time.Now()})
	}
	return all
}

// However much there is to tell, a state fits, and the reader learns how many pools it has not.
func TestStateFits(t *testing.T) {
	for _, n := range []int{0, 1, 10, 1000} {
		text, news := State{Time: time.Now(), Pools: pools(n)}.Encode()
		s, ok := DecodeState(text)
		if len(text) > StateMax || !ok || len(s.Pools)+s.More != n || n > 0 && news == "" {
			t.Errorf("%d pools: %d bytes, %v, %d and %d more", n, len(text), ok, len(s.Pools), s.More)
		}
		for _, p := range s.Pools {
			if len(p.Message) > messageMax || p.Reason != "NotMounted" {
				t.Errorf("%+v", p)
			}
		}
	}
}

// What a node that was taken over writes commands no terminal, and looks like no other line.
func TestStateOfAnEnemy(t *testing.T) {
	s, ok := DecodeState(`{"time":"2026-11-27T00:00:00Z","version":"\u001b[2Jv","reason":"a\nb",
"message":"\u202e","pools":[{"name":"p\u001b]0;x\u0007","state":"wonderful","reason":"\r",
"message":"` + strings.Repeat("x", 3000) + `","volumes":-1,"lost":-2}],"more":-3}`)
	if !ok {
		t.Fatal("it is not read")
	}
	p := s.Pools[0]
	for _, text := range []string{s.Version, s.Reason, s.Message, p.Name, p.Reason, p.Message} {
		if strings.ContainsAny(text, "\x1b\n\r\a\u202e") || len(text) > messageMax {
			t.Errorf("%q", text)
		}
	}
	if p.State != PoolClosed || p.Volumes != 0 || p.Lost != 0 || s.More != 0 {
		t.Errorf("%+v", s)
	}
	for _, none := range []string{"", "{}", "[", `{"time":"x"}`, strings.Repeat(" ", StateMax+1)} {
		if s, ok := DecodeState(none); ok {
			t.Errorf("%.20q is %+v", none, s)
		}
	}
}

// A Node that tells its host has a lease for people: little is written, and what a person is to
// know at once, though never more often than the pace.
func TestStateIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{told: true, key: "ours"}
		keep(t, s, "a_1", func(k *Keeper) {
			if wait(time.Minute); s.written() != 0 || !known(k) {
				t.Errorf("%d writes before there is a word", s.written())
			}
			s.tell(func(now *State) { now.Pools = []Pool{{Name: "fast", State: PoolOpen}} })
			if wait(Pace); s.written() != 1 {
				t.Errorf("%d writes of the first word", s.written())
			}
			for i := range 60 {
				s.tell(func(now *State) { now.Pools[0].Volumes = i })
				wait(time.Minute)
			}
			if got := s.written(); got < 12 || got > 16 {
				t.Errorf("%d writes in an hour without news", got)
			}
			before := s.written()
			for i := range 100 {
				s.tell(func(now *State) { now.Pools[0].State = []string{PoolClosed, PoolOpen}[i%2] })
				wait(7 * time.Second)
			}
			if got := s.written() - before; got < 20 || got > 71 {
				t.Errorf("%d writes in 700 seconds of news", got)
			}
		})
	})
}

// Two daemons of a node keep each other's words, and those of one that is long gone go.
func TestStatesOfTwoDaemons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{told: true, key: "ours"}
		old, _ := State{Time: time.Now().Add(-over - time.Hour)}.Encode()
		theirs, _ := State{Time: time.Now()}.Encode()
		s.becomes("a_1")
		s.lease.States = map[string]string{StatePrefix + "old": old, StatePrefix + "theirs": theirs,
			StatePrefix + "none": "x"}
		s.tell(func(*State) {})
		keep(t, s, "a_1", func(*Keeper) {
			wait(time.Minute)
			want := []string{StatePrefix + "ours", StatePrefix + "theirs"}
			if got := slices.Sorted(maps.Keys(s.lease.States)); !slices.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	})
}

// A lease that the host has not written before is made by one request. Where it is there all the
// same, as that of another daemon of the node, it is read, and where it decides who works under the
// name it is read in any case.
func TestFirstLease(t *testing.T) {
	for _, c := range []struct {
		name        string
		first, told bool
		there       bool
		reads       int
	}{
		{name: "first", first: true, told: true, reads: 0},
		{name: "first of this daemon", first: true, told: true, there: true, reads: 1},
		{name: "again", told: true, there: true, reads: 1},
		{name: "the name is told by the lease", first: true, reads: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{told: c.told, first: c.first, key: "ours"}
				theirs, _ := State{Time: time.Now()}.Encode()
				if c.there {
					s.becomes("a_1")
					s.lease.States = map[string]string{StatePrefix + "theirs": theirs}
				}
				s.tell(func(*State) {})
				keep(t, s, "a_1", func(*Keeper) {
					wait(2 * time.Second)
					if s.reads != c.reads || s.lease.States[StatePrefix+"ours"] == "" ||
						c.there && s.lease.States[StatePrefix+"theirs"] != theirs {
						t.Errorf("%d reads, want %d; %v", s.reads, c.reads, s.lease.States)
					}
				})
			})
		})
	}
}
