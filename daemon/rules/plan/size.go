package plan

import (
	"fmt"
	"math"
	"math/big"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

func requested(c *corev1.PersistentVolumeClaim) resource.Quantity {
	return c.Spec.Resources.Requests[corev1.ResourceStorage]
}

// Bytes is a quantity in whole bytes, a fraction rounded up, and whether it is one: a negative one
// is 0, one of 2^63 and more the largest number, and both are not.
//
// The API server takes 100E and 1e30 for a size. Quantity.Value of these is 0 or 1 (apimachinery,
// resource, int64Amount.AsScaledInt64), and to compare 1e999999999 with anything, Quantity.Cmp
// writes it out.
func Bytes(q resource.Quantity) (n int64, exact bool) {
	if n, small := q.AsInt64(); small {
		return max(n, 0), n >= 0
	}
	if q.Sign() <= 0 {
		return 0, q.Sign() == 0
	}
	number := q.AsDec() // unscaled * 10^-scale
	amount, scale := new(big.Int).Set(number.UnscaledBig()), int64(number.Scale())
	switch {
	case scale < -19: // 10^19 is more than 2^63
		return math.MaxInt64, false
	case scale < 0:
		amount.Mul(amount, power(-scale))
	case scale > int64(amount.BitLen()): // less than a byte, as 10^n is more than 2^n
		return 1, true
	case scale > 0:
		unit := power(scale)
		amount.Add(amount, unit).Sub(amount, big.NewInt(1)).Quo(amount, unit)
	}
	if !amount.IsInt64() {
		return math.MaxInt64, false
	}
	return amount.Int64(), true
}

func power(of int64) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(of), nil) }

// fits reports whether so much can be given out of free bytes.
func fits(want resource.Quantity, free uint64) bool {
	n, exact := Bytes(want)
	return exact && uint64(n) <= free
}

// SizeOf is what a pool keeps for a volume, by its object: its capacity. An adopted one may have
// another size, for as long as its capacity is the one that it was adopted with: kubevirt's
// programs write the size of the whole filesystem as each volume's capacity.
func SizeOf(v *corev1.PersistentVolume) resource.Quantity {
	capacity := v.Spec.Capacity[corev1.ResourceStorage]
	size, of, _ := strings.Cut(v.Annotations[SizeAnnotation], " of ")
	if of != capacity.String() {
		return capacity
	}
	if noted, err := resource.ParseQuantity(size); err == nil && noted.Sign() >= 0 &&
		Exceeds(capacity, noted) {
		return noted
	}
	return capacity
}

// SizeNote is the value of SizeAnnotation for a volume of which the pool keeps this size.
func SizeNote(v *corev1.PersistentVolume, size resource.Quantity) string {
	capacity := v.Spec.Capacity[corev1.ResourceStorage]
	return size.String() + " of " + capacity.String()
}

// leastRoom is how many bytes a pool has to have for one more volume not to be called full. What is
// left between the sizes of volumes is of no use to anybody.
const leastRoom = 1 << 20

// AllPromised is the sentence about a pool that is in order and has next to nothing for one more
// volume, "" while it has. It is told; a claim for what little there is gets it all the same.
func AllPromised(room capacity.Room) string {
	if room.Free >= leastRoom {
		return ""
	}
	return fmt.Sprintf("one more volume can get %s: %s are promised to volumes, and %s are available",
		words.Size(room.Free), words.Size(room.Promised), words.Size(room.Available))
}
