package plan

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// Disk is one of the pools that a class leads to, as it is for a claim's volume.
type Disk struct {
	Pool   Pool
	Closed string // why the pool takes no work, "" if it is open
	Held   bool   // it is closed because another daemon of this host uses it
	// Cordoned: it takes no new volumes because a person said so.
	Cordoned bool
	Room     capacity.Room // for the volume
	Has      bool          // it has the volume already, made by a call that ended before the object was
}

// Place puts a claim's volume into one of Disks, of which there is at least one, and returns which:
// the facts are of that pool then. A volume that was begun stays where it is. Where it fits nowhere,
// the facts are of a pool that is open, if one is.
func (f *ClaimFacts) Place() (chosen int) {
	for i := range f.Disks[1:] {
		if f.better(f.Disks[i+1], f.Disks[chosen]) {
			chosen = i + 1
		}
	}
	d := f.Disks[chosen]
	f.Pool, f.Closed, f.Held, f.Cordoned, f.Room = d.Pool, d.Closed, d.Held, d.Cordoned, d.Room
	return chosen
}

// better reports whether a volume is put into a and not into b, which comes before.
func (f *ClaimFacts) better(a, b Disk) bool {
	if rank := cmp.Compare(f.rank(a), f.rank(b)); rank != 0 || a.Pool.Fill && f.rank(a) > doesNotFit {
		return rank > 0
	}
	return a.Room.Free > b.Room.Free
}

// Ranks of a pool for a volume, the best last.
const (
	isClosed = iota
	isHeld
	doesNotFit
	itFits
	hasIt
)

func (f *ClaimFacts) rank(d Disk) int {
	switch {
	case d.Held:
		return isHeld
	case d.Closed != "":
		return isClosed
	case d.Has:
		return hasIt
	case fits(requested(f.Claim), d.Room.Free):
		return itFits
	}
	return doesNotFit
}

// lackMax is how many bytes are told of why one of several pools is closed.
const lackMax = 60

// eachLacks is why none of several pools has a volume of this size.
func eachLacks(want resource.Quantity, disks []Disk) string {
	return fmt.Sprintf("the claim requests %s for one volume in one of several pools: %s",
		words.Name(want.String()), eachHas(disks))
}

// eachHas is what each of several pools has for one more volume.
func eachHas(disks []Disk) string {
	all := make([]string, len(disks))
	for i, d := range disks {
		all[i] = d.Pool.Name + " has " + words.Size(d.Room.Free)
		if d.Closed != "" {
			all[i] = d.Pool.Name + " is closed (" + words.Line(d.Closed, lackMax) + ")"
		}
	}
	return strings.Join(all, ", ")
}

// DiskOfSource is the pool that has the source of a copy, if the class leads to several of which it
// is one: a copy is made beside its source.
func (f *ClaimFacts) DiskOfSource() (of Pool, is bool) {
	_, v := f.source()
	name := cmp.Or(f.taken().Pool, v.Labels[PoolLabel])
	for _, d := range f.Disks {
		if len(f.Disks) > 1 && d.Pool.Name == name {
			return d.Pool, true
		}
	}
	return Pool{}, false
}
