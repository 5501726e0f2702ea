package record

// Place is where the directory of a recorded volume is.
type Place string

// The places. A directory is in exactly one of them; renames between them are atomic.
const (
	InPool    Place = "pool"
	InStaging Place = "staging"
	InTrash   Place = "trash"    // whole: it can be put back
	Emptying  Place = "emptying" // in the trash, and its files are going
	InArchive Place = "archive"
	Nowhere   Place = "nowhere"
)

// Describe returns the place as it reads in a sentence about the directory.
func (p Place) Describe() string {
	switch p {
	case Emptying:
		return "in the trash, and its files are going"
	case Nowhere:
		return "gone"
	default:
		return "in the " + string(p)
	}
}
