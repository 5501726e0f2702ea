//go:build modelreal

package model

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

var (
	forLong   = flag.Duration("for", time.Hour, "how long orders are played")
	firstSeed = flag.Uint64("seed", 0, "that of the first order; 0: by the time")
	inWorlds  = flag.String("worlds", "", "only worlds whose name contains this")
	mostMoves = flag.Int("moves", 40, "so many events in an order at most")
)

// TestRandom plays orders that the model chooses at random on the real daemon. What is printed with
// a finding chooses the same order.
func TestRandom(t *testing.T) {
	seed := *firstSeed
	if seed == 0 {
		seed = uint64(time.Now().Unix())
	}
	on := &planes{T: t}
	played, whole := 0, 0
	for began := time.Now(); time.Since(began) < *forLong; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			if played++; playsRandom(t, on, seed) {
				whole++
			}
		})
	}
	t.Logf("%d orders, %d of them as in the model to the end", played, whole)
}

// TestLong plays orders that make test leaves out: most take long, because a daemon takes the lease
// of a shared pool when it has heard nothing of it for long.
func TestLong(t *testing.T) {
	plane := fixture.OwnPlane(t)
	files, err := filepath.Glob(filepath.Join("testdata", "long", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no orders are kept: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			playsKept(t, plane, hosttest.Need(readOrder(file))(t))
		})
	}
}

// playsRandom plays one order, and reports whether the daemon went the model's way to its end.
func playsRandom(t *testing.T, on *planes, seed uint64) (whole bool) {
	x := explorerOf(t, 0, 1)
	r, w := rand.New(rand.NewPCG(seed, 0)), x.workers[0]
	var some []world
	for _, of := range wandering() {
		if strings.Contains(of.name, *inWorlds) {
			some = append(some, of)
		}
	}
	o := w.wander(some[r.IntN(len(some))], r, 5+r.IntN(*mostMoves))
	st := newStage(t, on.of(o.world), w, o.world.first())
	defer st.end()
	st.begin()
	s, err := w.follow(o, st.play)
	if err != nil { // a real daemon does several things at a time
		t.Logf("seed %d: it went another way: %v\n%s", seed, err, o)
	}
	if wrong, differs := st.settle(s); wrong != "" || err == nil && differs != nil {
		t.Errorf("seed %d: in the end: %s: %v\n%s", seed, wrong, differs, o)
	}
	return err == nil
}
