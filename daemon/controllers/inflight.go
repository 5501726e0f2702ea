package controllers

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// inFlight remembers of each claim, by its UID, how long this process knows it and what of its
// provisioning is not complete: a directory that no volume object points to yet, and a volume
// object that the watch has not brought yet.
type inFlight struct {
	mu     sync.Mutex
	claims map[string]*claimInFlight
}

type claimInFlight struct {
	first       time.Time
	node        string    // that is chosen for the claim
	since       time.Time // when it was seen first
	queued      bool      // backlog was asked for since then
	backlog     time.Duration
	unpublished string    // the pool that has its directory
	published   time.Time // when its volume object was created; zero: it was not
}

func (f *inFlight) get(uid string) *claimInFlight {
	if f.claims[uid] == nil {
		put(&f.claims, uid, &claimInFlight{first: time.Now()})
	}
	return f.claims[uid]
}

// seen notes that the claim exists.
func (f *inFlight) seen(uid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.get(uid)
}

// chosen returns how long ago a claim was first seen with this node chosen for it, "" for none.
func (f *inFlight) chosen(uid, node string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.get(uid)
	if c.node != node || c.since.IsZero() {
		c.node, c.since, c.queued = node, time.Now(), false
	}
	return time.Since(c.since)
}

// chosenAt is when the claim was first seen with the node that is chosen for it.
func (f *inFlight) chosenAt(uid string) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.get(uid).since
}

// backlog is what arrive returned when the claim came as it is now.
func (f *inFlight) backlog(uid string, arrive func() time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.get(uid)
	if !c.queued {
		c.queued, c.backlog = true, arrive()
	}
	return c.backlog
}

// made notes that a directory may exist in pool for which no volume object was created yet.
func (f *inFlight) made(uid, pool string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.get(uid).unpublished = pool
}

// published notes that the directory has its volume object, and returns how long ago the claim was
// first seen.
func (f *inFlight) published(uid string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.get(uid)
	c.unpublished, c.published = "", time.Now()
	return time.Since(c.first)
}

// lag is how long a volume that was created, or a claim that was changed, may take to come through
// the watch.
const lag = 5 * time.Second

// awaited returns how long to wait for the watch to bring a claim's volume, 0 if it was not
// published lately. Until then the claim would be provisioned once more, for two requests and an
// fsync.
func (f *inFlight) awaited(uid string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.claims[uid]; c != nil && !c.published.IsZero() {
		return max(0, lag-time.Since(c.published))
	}
	return 0
}

// hasPublished reports whether this process created the claim's volume object, as long as it knows
// the claim.
func (f *inFlight) hasPublished(uid string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.claims[uid]
	return c != nil && !c.published.IsZero()
}

// busy reports whether a claim is being provisioned, or was just now.
func (f *inFlight) busy(uid string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.claims[uid]
	return c != nil && (c.unpublished != "" || !c.published.IsZero() && time.Since(c.published) < lag)
}

// abandon takes back what made noted, and returns the pool.
func (f *inFlight) abandon(uid string) (pool string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.claims[uid]; c != nil {
		pool, c.unpublished = c.unpublished, ""
	}
	return pool
}

// forget drops the claim, and returns the pool in which it left an unpublished directory, "" if
// there is none.
func (f *inFlight) forget(uid string) (pool string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.claims[uid]; c != nil {
		pool = c.unpublished
	}
	delete(f.claims, uid)
	return pool
}

// ends are the claims whose directory has no object yet, by UID, with their pools; and, sorted, those
// whose object was made just now.
func (f *inFlight) ends() (unpublished map[string]string, published []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	unpublished = map[string]string{}
	for _, uid := range slices.Sorted(maps.Keys(f.claims)) {
		known := f.claims[uid]
		if known.unpublished != "" {
			unpublished[uid] = known.unpublished
		}
		if !known.published.IsZero() && time.Since(known.published) < lag {
			published = append(published, uid)
		}
	}
	return unpublished, published
}

// remember puts these in the place of what is known.
func (f *inFlight) remember(unpublished map[string]string, published []string) {
	f.mu.Lock()
	f.claims = nil
	f.mu.Unlock()
	for _, uid := range published {
		f.published(uid)
	}
	for uid, pool := range unpublished {
		f.made(uid, pool)
	}
}
