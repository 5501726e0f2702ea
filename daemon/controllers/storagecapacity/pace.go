package storagecapacity

import (
	"cmp"
	"time"
)

const (
	// perRequest is how often the publisher may send a request in the long run, less than one a
	// second whatever happens.
	perRequest = 2 * time.Second
	// burst is how many requests it may send at once after it was quiet: more than a start takes
	// that reviews.
	burst = 15
	// lowerAfter is for how long an object may promise more than there is.
	lowerAfter = 10 * time.Second
)

// budget is what is left of the requests that may be sent: the time up to which they are paid for.
type budget struct{ paid time.Time }

// wait returns how long to wait for the next request.
func (b *budget) wait(now time.Time) time.Duration {
	return max(0, b.from(now).Add(perRequest).Sub(now))
}

// spend takes one request out, also where none is left.
func (b *budget) spend(now time.Time) { b.paid = b.from(now).Add(perRequest) }

// paid is the API, for one request that the budget pays for.
func (p *Publisher) paid() API {
	p.budget.spend(time.Now())
	return p.API
}

func (b *budget) from(now time.Time) time.Time {
	if most := now.Add(-burst * perRequest); b.paid.Before(most) {
		return most
	}
	return b.paid
}

// kind is what is due. The kinds take turns in this order, so that none waits for ever while others
// are due all the time.
type kind int

const (
	raise  kind = iota // what is missing or too low, and what has no room at all or is closed for another reason
	remove             // what is not wanted any more
	lower              // what is too high
	review             // the nodes that publish nothing
	kinds
)

// steps are what would bring what is published nearer to what is wanted: one object of each kind,
// nil if there is none.
type steps [kinds]*Object

// stepsTo takes the first object of each kind. An informer lists classes in no order, so that it is
// not always the same one.
func stepsTo(published map[string]Object, wanted []Object) (s steps) {
	names := map[string]bool{}
	for _, o := range wanted {
		names[o.Name] = true
		now, there := published[o.Name]
		switch {
		case !there || now.Bytes < o.Bytes || o.Bytes == 0 && now.Bytes > 0 || now.Closed != o.Closed:
			s[raise] = cmp.Or(s[raise], &o)
		case now.Bytes > o.Bytes:
			s[lower] = cmp.Or(s[lower], &o)
		}
	}
	for name, o := range published {
		if !names[name] {
			s[remove] = &o
		}
	}
	return s
}

// after returns the kind that is next when the last request was of the kind last.
func (s steps) after(last kind) (next kind, found bool) {
	for i := range kinds {
		if next = (last + 1 + i) % kinds; s[next] != nil {
			return next, true
		}
	}
	return 0, false
}
