package volume

import (
	"fmt"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

const (
	// leftMax is how many paths of what is left are kept for the message.
	leftMax = 5
	// pathMax is how much is said of a path within a volume, in bytes. Its owner may make it of any
	// length.
	pathMax = 160
)

// Rest is what of a volume could not be removed, or relabelled.
type Rest struct {
	Left  int      // entries
	Paths []string // the first few of them, relative to the volume, quoted, with the reason
}

// add counts an entry. Its path is asked for only if it is kept.
func (r *Rest) add(path func() string, err error) {
	r.Left++
	if len(r.Paths) < leftMax {
		r.Paths = append(r.Paths, fmt.Sprintf(`"%s": %v`, words.Ends(path(), pathMax), err))
	}
}

// String is the number and the first paths: "2 left: ...".
func (r Rest) String() string {
	more := ""
	if n := r.Left - len(r.Paths); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%d left: %s%s", r.Left, strings.Join(r.Paths, ", "), more)
}
