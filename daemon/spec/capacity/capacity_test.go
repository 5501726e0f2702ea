package capacity

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/quick"
)

const gib = 1 << 30

// What one more volume can get of a disk of 500 GiB with 25 GiB in reserve.
func TestRoom(t *testing.T) {
	for name, c := range map[string]struct {
		available, rootOnly uint64
		overcommit          float64
		promised            uint64
		want                uint64
	}{
		"empty":                                {500 * gib, 0, 1, 0, 475 * gib},
		"promised, and nothing is used":        {500 * gib, 0, 1, 400 * gib, 75 * gib},
		"promised, and half of it is used":     {300 * gib, 0, 1, 400 * gib, 75 * gib},
		"promised, and all of it is used":      {100 * gib, 0, 1, 400 * gib, 75 * gib},
		"used by others":                       {200 * gib, 0, 1, 0, 175 * gib},
		"used beyond what is promised":         {200 * gib, 0, 1, 100 * gib, 175 * gib},
		"all is promised":                      {500 * gib, 0, 1, 475 * gib, 0},
		"more is promised than there is":       {500 * gib, 0, 1, 900 * gib, 0},
		"less is available than the reserve":   {10 * gib, 0, 1, 0, 0},
		"a part is root's":                     {450 * gib, 50 * gib, 1, 0, 425 * gib},
		"a part is root's, the rest promised":  {450 * gib, 50 * gib, 1, 400 * gib, 25 * gib},
		"twice":                                {500 * gib, 0, 2, 600 * gib, 350 * gib},
		"twice, no more than is available":     {200 * gib, 0, 2, 300 * gib, 175 * gib},
		"twice, and others' use counts once":   {100 * gib, 0, 2, 200 * gib, 75 * gib},
		"twice, what others use is not ours":   {300 * gib, 0, 2, 900 * gib, 50 * gib},
		"half":                                 {500 * gib, 0, 0.5, 200 * gib, 37*gib + gib/2},
		"half, and others' use counts":         {400 * gib, 0, 0.5, 0, 137*gib + gib/2},
		"a filesystem that says nothing of it": {0, 0, 1, 0, 0},
	} {
		s := Space{Size: 500 * gib, Available: c.available, RootOnly: c.rootOnly, Reserve: 25 * gib, Overcommit: c.overcommit}
		if got := s.Room(c.promised); got.Free != c.want || got.Promised != c.promised || got.Available != less(c.available, 25*gib) {
			t.Errorf("%s: %+v, want %d free (%.1f GiB)", name, got, c.want, float64(c.want)/gib)
		}
	}
}

// Whatever a filesystem says, there is never more for a volume than is available above the reserve,
// nor than the factor leaves above the promises; and what was given out once makes what is left no
// larger.
func TestRoomIsBounded(t *testing.T) {
	bounded := func(size, rootOnly, available, reserve, promised, more uint64, overcommit float64) bool {
		s := Space{Size: size, RootOnly: rootOnly, Available: available, Reserve: reserve, Overcommit: math.Abs(overcommit)}
		got := s.Room(promised)
		after := s.Room(Plus(promised, more))
		limit := times(less(less(size, rootOnly), reserve), s.Overcommit)
		return got.Free <= less(available, reserve) && got.Free <= less(limit, promised) && after.Free <= got.Free &&
			got.Free <= limit
	}
	if err := quick.Check(bounded, &quick.Config{MaxCount: 20000}); err != nil {
		t.Error(err)
	}
	for _, n := range []uint64{0, 1, math.MaxInt64, math.MaxUint64} {
		for _, factor := range []float64{0, 1, 1.5, 1000, math.Inf(1), math.NaN(), -1} {
			if got := times(n, factor); factor > 1 && got < n || factor == 1 && got != n || !(factor > 0) && got != 0 {
				t.Errorf("%d times %v is %d", n, factor, got)
			}
		}
	}
}

// Sums end at the largest number, and come back from there.
func TestSumsDoNotOverflow(t *testing.T) {
	b := NewBook()
	a, other := b.Account("a"), b.Account("b")
	space := Space{Device: "8:1", Size: math.MaxUint64, Available: math.MaxUint64, Overcommit: 1000}
	other.Room(space)
	for _, volume := range []string{"x", "y"} {
		a.replace(volume, Promise{Volume: math.MaxUint64 - 5, Archived: 3})
		other.replace(volume, Promise{Volume: math.MaxUint64})
	}
	if got := a.Room(space); got.Promised != math.MaxUint64 || got.Free != 0 {
		t.Errorf("%+v", got)
	}
	a.Release("x")
	if sum, _ := a.Promised(); sum != math.MaxUint64 {
		t.Errorf("%d promised", sum)
	}
	a.replace("x", Promise{})
	a.replace("y", Promise{Volume: 7})
	if sum, _ := a.Promised(); sum != 7 {
		t.Errorf("%d promised, want 7", sum)
	}
}

// Pools on one filesystem share what is free there; a pool on another one, and one that was
// dropped, does not count.
func TestPoolsOfOneFilesystem(t *testing.T) {
	b := NewBook()
	disk := Space{Device: "8:1", Size: 100, Available: 100, Overcommit: 1}
	other := disk
	other.Device = "8:2"
	first, second, third := b.Account("first"), b.Account("second"), b.Account("third")
	for _, take := range []struct {
		from  *Account
		space Space
	}{{first, disk}, {third, other}} {
		if _, err := take.from.Take("v", 60, take.space); err != nil {
			t.Fatal(err)
		}
	}
	if got := second.Room(disk); got.Free != 40 || got.Promised != 60 {
		t.Errorf("beside a pool that promised 60 of 100: %+v", got)
	}
	b.Keep("second")
	if got := second.Room(disk); got.Free != 100 || b.Account("second") != second {
		t.Errorf("beside no other pool: %+v", got)
	}
}

// model is a disk with records beside the account that is kept of it.
type model struct {
	*testing.T
	rng     *rand.Rand
	account *Account
	space   Space
	disk    map[string]uint64
	begun   map[string]*Taken // creations and growths
	count   *Count
	read    map[string]Promise
	unread  map[string]bool
	doubt   bool // End was not certain since the last count began
}

var volumes = []string{"a", "b", "c", "d", "e", "f", "g", "h"}

func (m *model) step() {
	volume := volumes[m.rng.IntN(len(volumes))]
	switch m.rng.IntN(9) {
	case 0, 1:
		m.begin(volume)
	case 2, 3:
		m.end(volume)
	case 4:
		m.purge(volume)
	case 5:
		m.startCount()
	case 6:
		m.readOne(volume)
	case 7:
		m.finishCount()
	case 8:
		m.write(volume)
	}
	if m.rng.IntN(200) == 0 {
		m.crash()
	}
}

// begin takes for a volume, and writes its record or not: what was begun may end later, with or
// without it.
func (m *model) begin(volume string) {
	if m.begun[volume] != nil {
		return
	}
	var err error
	if m.disk[volume] > 0 && m.rng.IntN(2) == 0 {
		m.begun[volume], err = m.account.Grow(volume, m.disk[volume]+m.rng.Uint64N(40), m.space)
	} else { // a claim asks for the same each time
		m.begun[volume], err = m.account.Take(volume, 10+4*uint64(volume[0]-'a'), m.space)
	}
	if err != nil {
		delete(m.begun, volume)
		return
	}
	if m.rng.IntN(2) > 0 {
		m.write(volume)
	}
}

// write writes the record of what was begun: at once, later, or never.
func (m *model) write(volume string) {
	if taken := m.begun[volume]; taken != nil && (m.disk[volume] == 0 || taken.growth) && taken.bytes > 0 {
		m.disk[volume] = taken.bytes
	}
}

func (m *model) end(volume string) {
	taken := m.begun[volume]
	if taken == nil {
		return
	}
	delete(m.begun, volume)
	kept := m.disk[volume] > 0
	if taken.growth {
		kept = m.disk[volume] == taken.bytes
	}
	m.doubt = !taken.End(kept) || m.doubt
}

// purge removes a record, and tells the account later than that.
func (m *model) purge(volume string) {
	if taken := m.begun[volume]; m.disk[volume] == 0 || taken != nil && taken.growth {
		return
	}
	delete(m.disk, volume)
	m.account.Release(volume)
}

func (m *model) startCount() {
	if m.count != nil {
		return
	}
	m.count, m.read, m.unread, m.doubt = m.account.Count(directory), map[string]Promise{}, map[string]bool{}, false
	for _, volume := range volumes {
		m.unread[volume] = true
	}
}

func (m *model) readOne(volume string) {
	if m.count == nil || !m.unread[volume] {
		return
	}
	delete(m.unread, volume)
	if bytes := m.disk[volume]; bytes > 0 {
		m.read[volume] = Promise{Volume: bytes}
	}
}

func (m *model) finishCount() {
	if m.count == nil {
		return
	}
	for _, volume := range volumes {
		m.readOne(volume)
	}
	m.count.Done(m.read)
	m.count = nil
}

// crash ends the process: what was taken is forgotten, and the records are counted anew.
func (m *model) crash() {
	m.account, m.begun, m.count = NewBook().Account("fast"), map[string]*Taken{}, nil
	m.startCount()
	m.finishCount()
}

// check compares: the account never has less than the disk, and nothing else once all that was
// begun has ended.
func (m *model) check(step int) {
	m.Helper()
	var sum uint64
	for _, bytes := range m.disk {
		sum += bytes
	}
	got, known := m.account.Promised()
	if got < sum || len(m.begun) == 0 && !m.doubt && got != sum || !known {
		m.Fatalf("step %d: the account has %d (%+v), the disk %d (%+v); %d calls have not ended", step, got, m.account.volumes, sum, m.disk, len(m.begun))
	}
	if sum > m.space.Size {
		m.Fatalf("step %d: %d of %d are promised", step, sum, m.space.Size)
	}
}

// Whatever is made, fails, is purged and counted, in any order and with a count that lasts while
// all that happens: the account is the sum of the records.
func TestAccountIsTheSumOfTheRecords(t *testing.T) {
	for seed := range uint64(300) {
		m := &model{T: t, rng: rand.New(rand.NewPCG(seed, 1)), space: Space{Size: 150, Available: 150, Overcommit: 1}, disk: map[string]uint64{}}
		m.crash()
		for step := range 400 {
			m.step()
			m.check(step)
		}
	}
}

// Space.Over is what Room leaves nothing of, and not more: the last volume that fits is not over.
func TestOver(t *testing.T) {
	s := Space{Size: 1000, RootOnly: 50, Available: 900, Reserve: 100, Overcommit: 1}
	for promised, want := range map[uint64]bool{0: false, 800: false, 850: false, 851: true} {
		if got := s.Over(promised); got != want {
			t.Errorf("%d promised: %v", promised, got)
		}
	}
	s.Available = 700 // of others, or of volumes that use more than they were promised
	for promised, want := range map[uint64]bool{0: false, 40: false, 850: false, 851: true} {
		if got := s.Over(promised); got != want {
			t.Errorf("%d promised, and 250 in use: %v", promised, got)
		}
	}
}
