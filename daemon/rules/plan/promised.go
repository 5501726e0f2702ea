package plan

import (
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

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
