package crash

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/crash/killer"
)

const uid = "0a1b2c3d-1111-2222-3333-444455556666"

// good is the state with one claim that ended as it was to.
// recorded is the record of the volume, of so many MiB.
func recorded(mib int64) record {
	pv := "pvc-" + uid
	return record{PV: pv, ClaimUID: uid, Directory: pv, Requested: mib << 20}
}

func good(f outcome) (expectation, snapshot) {
	w := expectation{claim: "c", uid: uid, outcome: f, data: "text"}
	s := snapshot{
		things: map[string]string{"ours/pool.json": ""}, claims: map[string]claim{}, objects: map[string]object{},
		dirs: map[string]dir{}, records: map[string]record{},
	}
	for _, thing := range w.things() {
		s.things[thing] = uid
	}
	d := dir{dirMode, dirUID, dirGID, "text"}
	switch f {
	case bound:
		s.claims["c"] = claim{uid, "Bound", w.pv(), false, 1, ""}
		s.objects[w.pv()] = object{uid, "Bound", "/media/pool/" + w.pv(), 1, false, 1}
		s.dirs["pool/"+w.pv()], s.records["volumes/"+w.pv()+".json"] = d, recorded(1)
	case retained:
		kept := recorded(1)
		kept.Retained = true
		s.dirs["pool/"+w.pv()], s.records["volumes/"+w.pv()+".json"] = d, kept
	case archived:
		s.dirs["archive/"+w.pv()], s.records["archive/"+w.pv()+".json"] = d, recorded(1)
	}
	return w, s
}

var base = map[string]bool{"ours/pool.json": true}

func TestCompareGood(t *testing.T) {
	for _, f := range []outcome{gone, bound, archived, retained} {
		w, s := good(f)
		if faults := compare([]expectation{w}, base, s); len(faults) > 0 {
			t.Errorf("outcome %d: %v", f, faults)
		}
	}
}

// Each thing that is taken away is lost, and one that is left when all should be gone is leaked.
func TestCompareEachThing(t *testing.T) {
	for _, f := range []outcome{bound, archived, retained} {
		w, whole := good(f)
		for thing := range maps.Keys(whole.things) {
			_, s := good(f)
			delete(s.things, thing)
			want(t, compare([]expectation{w}, base, s), "lost: "+thing+" is not there")
			if thing != "ours/pool.json" {
				w := w
				w.outcome = gone
				s = snapshot{things: map[string]string{"ours/pool.json": "", thing: uid}}
				want(t, compare([]expectation{w}, base, s), "leaked: "+thing+" is left")
				want(t, compare(nil, base, s), "leaked: "+thing+" is left")
			}
		}
	}
}

// Whatever else is there is double if it is about a claim that lives, and leaked if not.
func TestCompareExtra(t *testing.T) {
	for _, f := range []outcome{bound, archived, retained} {
		for _, extra := range []string{"staging/pvc-" + uid, "trash/pvc-" + uid, "object other", "volumes/pvc-" + uid + ".json.new"} {
			w, s := good(f)
			s.things[extra] = uid
			want(t, compare([]expectation{w}, base, s), "double: "+extra+" is there, too")
			s.things[extra] = ""
			want(t, compare([]expectation{w}, base, s), "leaked: "+extra+" is left")
		}
	}
}

// What a kill may leave in the trash is accepted whole, with its record, without its object, and
// nowhere else.
func TestCompareKept(t *testing.T) {
	pv := "pvc-" + uid
	left := func() snapshot {
		_, s := good(gone)
		for _, thing := range []string{"trash/" + pv, "volumes/" + pv + ".json"} {
			s.things[thing] = uid
		}
		s.dirs["trash/"+pv], s.records["volumes/"+pv+".json"] = dir{dirMode, dirUID, dirGID, "text"}, recorded(1)
		return s
	}
	w := expectation{claim: "c", uid: uid, outcome: gone, data: "text", killed: true}
	if faults := compare([]expectation{w}, base, left()); len(faults) > 0 {
		t.Errorf("killed: %v", faults)
	}
	for name, spoil := range map[string]func(*expectation, *snapshot){
		"no daemon was killed": func(w *expectation, _ *snapshot) { w.killed = false },
		"not whole":            func(_ *expectation, s *snapshot) { s.dirs["trash/"+pv] = dir{dirMode, dirUID, dirGID, ""} },
		"without a record":     func(_ *expectation, s *snapshot) { delete(s.records, "volumes/"+pv+".json") },
		"beside its object":    func(_ *expectation, s *snapshot) { s.objects[pv] = object{} },
	} {
		w, s := w, left()
		spoil(&w, &s)
		if faults := compare([]expectation{w}, base, s); len(faults) != 2 {
			t.Errorf("%s: %v, want two leaks", name, faults)
		}
	}
}

// A claim that was deleted while it grew leaves a record of a size that it had, or was to have, and
// of no other.
func TestCompareGrowing(t *testing.T) {
	for mib, want := range map[int64]int{0: 1, 1: 0, 2: 0, 3: 0, 4: 1} {
		w, s := good(archived)
		w.mib, w.growing = 3, true
		r := w.record()
		r.Requested = mib << 20
		s.records["archive/"+w.pv()+".json"] = r
		if faults := compare([]expectation{w}, base, s); len(faults) != want {
			t.Errorf("a record of %d MiB: %v", mib, faults)
		}
	}
}

func TestCompareFlaws(t *testing.T) {
	pv := "pvc-" + uid
	for name, c := range map[string]struct {
		outcome outcome
		spoil   func(*snapshot)
		want    string
	}{
		"data":      {bound, func(s *snapshot) { s.dirs["pool/"+pv] = dir{dirMode, dirUID, dirGID, ""} }, `data ""`},
		"kept data": {archived, func(s *snapshot) { s.dirs["archive/"+pv] = dir{dirMode, dirUID, dirGID, "x"} }, `data "x"`},
		"mode":      {bound, func(s *snapshot) { s.dirs["pool/"+pv] = dir{0o700, dirUID, dirGID, "text"} }, "mode 0700"},
		"owner":     {bound, func(s *snapshot) { s.dirs["pool/"+pv] = dir{dirMode, 0, 0, "text"} }, "owner 0:0"},
		"record":    {bound, func(s *snapshot) { s.records["volumes/"+pv+".json"] = record{} }, "record"},
		"retained": {retained, func(s *snapshot) {
			s.records["volumes/"+pv+".json"] = recorded(1)
		}, "Retained:false"},
		"pending": {bound, func(s *snapshot) { s.claims["c"] = claim{uid, "Pending", "", false, 0, ""} }, "Pending"},
		"other":   {bound, func(s *snapshot) { s.claims["c"] = claim{"other", "Bound", pv, false, 1, ""} }, "other"},
		"size":    {bound, func(s *snapshot) { s.claims["c"] = claim{uid, "Bound", pv, false, 2, ""} }, "mib:2"},
		"growing": {bound, func(s *snapshot) { s.claims["c"] = claim{uid, "Bound", pv, false, 1, "Resizing"} }, "Resizing"},
		"larger":  {bound, func(s *snapshot) { s.objects[pv] = object{uid, "Bound", "/pool/" + pv, 1, false, 2} }, "mib:2"},
		"promised": {bound, func(s *snapshot) {
			s.records["volumes/"+pv+".json"] = recorded(2)
		}, "Requested:2097152"},
		"finalizer":  {bound, func(s *snapshot) { s.objects[pv] = object{uid, "Bound", "/pool/" + pv, 0, false, 1} }, "finalizers:0"},
		"going":      {bound, func(s *snapshot) { s.objects[pv] = object{uid, "Bound", "/pool/" + pv, 1, true, 1} }, "going:true"},
		"other path": {bound, func(s *snapshot) { s.objects[pv] = object{uid, "Bound", "/pool/x", 1, false, 1} }, "/pool/x"},
	} {
		w, s := good(c.outcome)
		c.spoil(&s)
		faults := compare([]expectation{w}, base, s)
		if len(faults) != 1 || faults[0].kind != loss || !strings.Contains(faults[0].text, c.want) {
			t.Errorf("%s: %v, want one loss with %q", name, faults, c.want)
		}
	}
}

func want(t *testing.T, faults []fault, text string) {
	t.Helper()
	if len(faults) != 1 || faults[0].String() != text {
		t.Errorf("%v, want %q", faults, text)
	}
}

// A table with a fault, or with an operation in which no daemon was killed, proves nothing.
func TestReport(t *testing.T) {
	fine, faulty, idle := &row{name: "fine", kills: 1}, &row{name: "faulty", kills: 1}, &row{name: "idle"}
	cut := &row{name: "cut", kills: 1, all: true, points: 20, missed: []string{killer.Response + " #9", killer.Request + " #7"}}
	some := &row{name: "some", kills: 1, points: 9, missed: []string{"fsync pool #1"}}
	most := &row{name: "most", kills: 1, all: true, points: 9, missed: some.missed}
	faulty.blame("killed at x", []fault{{double, "y"}})
	faulty.blame("killed at z", nil)
	for want, all := range map[bool][]report{true: {{fine}, {fine, cut, some}}, false: {{}, {fine, faulty}, {fine, idle}, {fine, most}}} {
		for _, r := range all {
			var out strings.Builder
			if got := r.print(&out); got != want {
				t.Errorf("%d rows: %t\n%s", len(r), got, out.String())
			}
		}
	}
	var out strings.Builder
	report{faulty}.print(&out)
	for _, text := range []string{"killed at x: double: y", fmt.Sprintf("%-42s %6d %6d %6d %6d %6d %6d", "all", 0, 1, 0, 0, 0, 1)} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("the report lacks %q:\n%s", text, out.String())
		}
	}
}

// What an operation begins with, a start recovers from, and each has something to come to.
func TestOperations(t *testing.T) {
	names := map[string]bool{}
	for _, op := range operations {
		if names[op.name] {
			t.Errorf("%q is there twice", op.name)
		}
		names[op.name] = true
		if !op.boot && (len(op.steps) == 0 || op.dies != "" || len(op.down) > 0) {
			t.Errorf("%q: an operation of a running daemon has steps, and nothing else", op.name)
		}
		if op.dies != "" && len(op.steps) == 0 {
			t.Errorf("%q: who is to die at %q?", op.name, op.dies)
		}
		archives, retains := op.class == archiving, op.class == retaining
		if (op.outcome == archived) != archives || op.outcome == retained && !retains {
			t.Errorf("%q: its class does not fit its outcome", op.name)
		}
	}
}
