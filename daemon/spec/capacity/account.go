package capacity

import (
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Book has the accounts of all pools of a daemon. It is safe for concurrent use, and so are they.
type Book struct {
	mu       sync.Mutex
	accounts map[string]*Account
	changed  chan struct{}
}

// NewBook returns a Book without accounts.
func NewBook() *Book { return &Book{accounts: map[string]*Account{}, changed: make(chan struct{}, 1)} }

// Changed is sent to after what is promised changed.
func (b *Book) Changed() <-chan struct{} { return b.changed }

// Account returns the account with this key, a new one if there is none.
func (b *Book) Account(key string) *Account {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.accounts[key]
	if a == nil {
		a = &Account{book: b, volumes: map[string]Promise{}, flights: map[string]*flight{}, touched: map[string]int{}}
		b.accounts[key] = a
	}
	return a
}

// Keep drops the accounts with other keys than these. What they promised is in use by others then.
func (b *Book) Keep(keys ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := map[string]*Account{}
	for _, key := range keys {
		if a := b.accounts[key]; a != nil {
			kept[key] = a
		}
	}
	b.accounts = kept
}

// promised is the sum on the filesystem of this device, with the account's own.
func (b *Book) promised(own *Account) uint64 {
	sum := own.sum
	for _, a := range b.accounts {
		if a != own && a.device != "" && a.device == own.device {
			sum = Plus(sum, a.sum)
		}
	}
	return sum
}

// Promise is what the records of one name promise, in bytes. Several archived volumes may have the
// same name.
type Promise struct {
	Volume   uint64
	Archived uint64
}

func (p Promise) all() uint64 { return Plus(p.Volume, p.Archived) }

// Account is what one pool has promised. It has to be counted (Count) before it is right (Known).
type Account struct {
	book    *Book
	device  string // of the pool's filesystem when it was asked for last
	known   bool
	of      mounts.Identity // of the directory whose records were counted last
	sum     uint64
	volumes map[string]Promise // by the volume's name
	flights map[string]*flight // creations and growths that have not ended, by the same
	counts  int                // that have not ended
	moment  int                // grows with each change
	touched map[string]int     // the moment of a volume's last change, while there are counts
}

// Known reports whether the account is that of this directory's records.
func (a *Account) Known(id mounts.Identity) bool {
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	return a.known && a.of == id
}

// Forget has the records counted before anything more is taken: others may have changed them.
func (a *Account) Forget() {
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	a.known = false
}

// Promised is the sum of the pool's own promises, in bytes. ok is false as long as they were not
// counted.
func (a *Account) Promised() (sum uint64, ok bool) {
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	return a.sum, a.known
}

// PromisedTo is what is promised to the volumes of this name. ok is false as long as they were not
// counted.
func (a *Account) PromisedTo(volume string) (p Promise, ok bool) {
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	return a.volumes[volume], a.known
}

// Room is what one more volume can get.
func (a *Account) Room(s Space) Room {
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	return a.room(s)
}

// RoomFor is what the volume of this name can get: what it was promised before, too.
func (a *Account) RoomFor(volume string, s Space) Room {
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	room := a.room(s)
	room.Free = max(room.Free, a.volumes[volume].Volume)
	return room
}

func (a *Account) room(s Space) Room {
	a.device = s.Device
	room := s.Room(a.book.promised(a))
	for name, p := range a.volumes {
		one := Held{name, p.all()}
		for i, other := range room.Largest {
			if one.before(other) {
				room.Largest[i], one = one, other
			}
		}
	}
	return room
}

// before orders those that are equal by name, so that the same is said again.
func (h Held) before(other Held) bool {
	if h.Bytes != other.Bytes {
		return h.Bytes > other.Bytes
	}
	return other.Volume == "" || h.Volume < other.Volume
}

// set changes what is promised to a volume, and notes that for a Count that is going on.
func (a *Account) set(volume string, p Promise) {
	if a.counts > 0 {
		a.moment++
		a.touched[volume] = a.moment
	}
	if p == (Promise{}) {
		delete(a.volumes, volume)
	} else {
		a.volumes[volume] = p
	}
}

// replace is set that keeps the sum, which is added up anew where it is more than a number holds.
func (a *Account) replace(volume string, p Promise) {
	before := a.volumes[volume].all()
	a.set(volume, p)
	wake.Signal(a.book.changed)
	if sum := Plus(less(a.sum, before), p.all()); a.sum != ^uint64(0) && sum != ^uint64(0) {
		a.sum = sum
		return
	}
	a.total()
}

func (a *Account) total() {
	a.sum = 0
	for _, p := range a.volumes {
		a.sum = Plus(a.sum, p.all())
	}
}

// flight is the calls for one volume that have not ended, and what is known of its record
// meanwhile.
type flight struct {
	calls    int
	reserved bool // by Reserve, and not dropped since
	Ended
}

// Ended is what calls for a volume came to, as long as its promise is reserved or others go on.
type Ended struct{ Kept, Lost, Released bool }

func (a *Account) begin(volume string) {
	if a.flights[volume] == nil {
		a.flights[volume] = &flight{}
	}
	a.flights[volume].calls++
}

// Taken is a promise to a volume whose record is not written yet. It has to be ended.
type Taken struct {
	account *Account
	volume  string
	bytes   uint64
	growth  bool
	before  Promise // of a growth
}

// Take promises so many bytes to a new volume, or returns a *FullError. A volume that has a promise
// keeps that, and costs nothing more: its creation is repeated.
func (a *Account) Take(volume string, bytes uint64, s Space) (*Taken, error) {
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	if !a.holds(volume) {
		if err := a.promise(volume, bytes, s); err != nil {
			return nil, err
		}
	}
	a.begin(volume)
	return &Taken{account: a, volume: volume, bytes: bytes}, nil
}

// holds reports whether a volume has a promise, or is being made.
func (a *Account) holds(volume string) bool {
	_, held := a.volumes[volume]
	return held || a.flights[volume] != nil
}

func (a *Account) promise(volume string, bytes uint64, s Space) error {
	if err := a.fits(bytes, s); err != nil {
		return err
	}
	a.replace(volume, Promise{Volume: bytes})
	return nil
}

// Reserve is Take for a volume of which the caller makes nothing: what is returned is dropped, and
// nil for one that has its promise already.
func (a *Account) Reserve(volume string, bytes uint64, s Space) (*Taken, error) {
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	if a.holds(volume) {
		return nil, nil
	}
	if err := a.promise(volume, bytes, s); err != nil {
		return nil, err
	}
	a.flights[volume] = &flight{reserved: true}
	return &Taken{account: a, volume: volume, bytes: bytes}, nil
}

// Reserved is what Reserve returned for a volume and is not dropped yet, nil for none.
func (a *Account) Reserved(volume string) *Taken {
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	if f := a.flights[volume]; f == nil || !f.reserved {
		return nil
	}
	return &Taken{account: a, volume: volume, bytes: a.volumes[volume].Volume}
}

func (a *Account) fits(bytes uint64, s Space) error {
	if room := a.room(s); bytes > room.Free {
		return &FullError{Room: room, Asked: bytes}
	}
	return nil
}

// Grow promises so many bytes in all to a volume that there is, or returns a *FullError. Fewer than
// before are never refused, and what they leave is free when the growth has ended.
func (a *Account) Grow(volume string, bytes uint64, s Space) (*Taken, error) {
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	before := a.volumes[volume]
	if bytes > before.Volume {
		if err := a.fits(bytes-before.Volume, s); err != nil {
			return nil, err
		}
		a.replace(volume, Promise{Volume: bytes, Archived: before.Archived})
	}
	a.begin(volume)
	return &Taken{account: a, volume: volume, bytes: bytes, growth: true, before: before}, nil
}

// Grows reports whether more is promised than before.
func (t *Taken) Grows() bool { return t.bytes > t.before.Volume }

// End ends a creation or a growth. kept reports whether the disk has the record, or may have it;
// what is not kept is free again. certain is false if the records have to be counted to know what
// is there: the volume was made or removed by several calls at the same time. Until then it keeps
// its promise.
func (t *Taken) End(kept bool) (certain bool) {
	a := t.account
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	f := a.flights[t.volume]
	f.Kept, f.Lost = f.Kept || kept, f.Lost || !kept
	f.calls--
	return t.ends(f)
}

// Drop ends what Reserve began. What was not made meanwhile is free again; certain is as of End.
func (t *Taken) Drop() (certain bool) {
	t.account.book.mu.Lock()
	defer t.account.book.mu.Unlock()
	f := t.account.flights[t.volume]
	f.reserved = false
	return t.ends(f)
}

func (t *Taken) ends(f *flight) (certain bool) {
	a := t.account
	if f.calls > 0 || f.reserved {
		return true
	}
	delete(a.flights, t.volume)
	now := a.volumes[t.volume]
	switch {
	case f.Kept && (t.growth || now.Volume == 0):
		now.Volume = t.bytes
	case !f.Kept && t.growth:
		now.Volume = t.before.Volume
	case !f.Kept:
		now.Volume = 0
	}
	a.replace(t.volume, now)
	return !f.Kept || !f.Lost && !f.Released
}

// Release takes a volume's promise back, because its record is gone. What is being made at the same
// time keeps it.
func (a *Account) Release(volume string) {
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	if f := a.flights[volume]; f != nil {
		f.Released = true
		return
	}
	a.replace(volume, Promise{Archived: a.volumes[volume].Archived})
}
