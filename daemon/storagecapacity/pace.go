package storagecapacity

import "time"

const (
	// perRequest is how often the publisher may send a request in the long run, less than one a second whatever happens.
	perRequest = 2 * time.Second
	// burst is how many requests it may send at once after it was quiet.
	burst = 10
	// lowerAfter is for how long an object may promise more than there is.
	lowerAfter = 10 * time.Second
)

// budget is what is left of the requests that may be sent: the time up to which they are paid for.
type budget struct{ paid time.Time }

// take takes one request out, or returns how long to wait for it.
func (b *budget) take(now time.Time) time.Duration {
	paid := now.Add(-burst * perRequest)
	if b.paid.After(paid) {
		paid = b.paid
	}
	if paid = paid.Add(perRequest); paid.After(now) {
		return paid.Sub(now)
	}
	b.paid = paid
	return 0
}

// step is one request that would bring what is published nearer to what is wanted.
type step struct {
	object Object
	remove bool
	lowers bool // it can wait
}

// next returns the most urgent step: what is missing or too low comes first, and what has no room
// at all or is closed for another reason; then what is not
// wanted any more; then what is too high.
func next(published map[string]Object, wanted []Object) (s step, found bool) {
	names := map[string]bool{}
	lower := step{lowers: true}
	for _, o := range wanted {
		names[o.Name] = true
		now, there := published[o.Name]
		switch {
		case !there || now.Bytes < o.Bytes || o.Bytes == 0 && now.Bytes > 0 || now.Closed != o.Closed:
			return step{object: o}, true
		case now.Bytes > o.Bytes && lower.object.Name == "":
			lower.object = o
		}
	}
	for name := range published {
		if !names[name] {
			return step{object: Object{Name: name}, remove: true}, true
		}
	}
	return lower, lower.object.Name != ""
}
