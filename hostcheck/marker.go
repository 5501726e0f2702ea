package hostcheck

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// Names in a pool's directory.
const (
	PrivateDir = ".hostpath-provisioner"   // what the daemon keeps for itself, mode 0700
	MarkerPath = PrivateDir + "/pool.json" // the marker
	markerMax  = 64 << 10                  // bytes; a marker has about 200
	markerNow  = 1                         // version that EncodeMarker writes
	idAlphabet = "an ID of 1 to 128 letters, digits and '-'"
)

// Marker tells one pool's filesystem from every other, and whose it is. Its ID never changes.
type Marker struct {
	Version int       `json:"version"`
	Pool    string    `json:"pool"`
	ID      string    `json:"id"` // random, never used twice
	Created time.Time `json:"created"`
	// Whose the pool is. The daemon writes it when it first works there; versions before it have
	// neither.
	Node        string `json:"node,omitempty"`        // of a pool that one node has
	FormerNodes string `json:"formerNodes,omitempty"` // names that its records may have, by the operator's word, between spaces
	Cluster     string `json:"cluster,omitempty"`     // UID of the namespace kube-system, or ClusterAny
	Scope       string `json:"scope,omitempty"`       // ScopeShared: of a pool that nodes share; it has no node then
}

// Former are the names in FormerNodes.
func (m Marker) Former() []string { return strings.Fields(m.FormerNodes) }

// ScopeShared stands in the marker of a pool that several nodes have.
const ScopeShared = "shared"

// ClusterAny stands in a marker for the next cluster that a daemon of the pool finds.
const ClusterAny = "any"

// Errors of ReadMarker and DecodeMarker, wrapped.
var (
	ErrNoMarker      = errors.New("no marker")
	ErrMarkerDamaged = errors.New("the marker cannot be understood")
)

// NewMarker makes a marker with an ID that no other marker has.
func NewMarker(pool string, created time.Time) Marker {
	return Marker{Version: markerNow, Pool: pool, ID: rand.Text(), Created: created.UTC().Truncate(time.Second)}
}

// EncodeMarker is the marker as its file holds it.
func EncodeMarker(m Marker) ([]byte, error) {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("marker: %w", err)
	}
	data = append(data, '\n')
	_, err = DecodeMarker(data)
	return data, err
}

// DecodeMarker reads what EncodeMarker wrote. Anything doubtful is ErrMarkerDamaged, a marker of a
// newer version too: this program cannot know what it means.
func DecodeMarker(data []byte) (Marker, error) {
	var m Marker
	err := json.Unmarshal(data, &m)
	switch {
	case err != nil:
		return Marker{}, fmt.Errorf("%w: %w", ErrMarkerDamaged, err)
	case m.Version != markerNow:
		return Marker{}, fmt.Errorf("%w: version %d, only %d is known", ErrMarkerDamaged, m.Version, markerNow)
	case m.Pool == "":
		return Marker{}, fmt.Errorf("%w: no pool", ErrMarkerDamaged)
	case !validID(m.ID):
		return Marker{}, fmt.Errorf("%w: %q is not %s", ErrMarkerDamaged, m.ID, idAlphabet)
	}
	return m, nil
}

func validID(id string) bool {
	for _, c := range []byte(id) {
		if c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return id != "" && len(id) <= 128
}

// ReadMarker reads the marker of the pool whose directory is open at root. The caller bounds the
// time: a hung filesystem does not respond.
func ReadMarker(root int) (Marker, error) {
	return readMarker(root, 0)
}

// readMarkerDirect asks the device and not the page cache, where the filesystem can do that: a disk
// that was pulled out goes on being read from the cache for hours.
func readMarkerDirect(root int) (Marker, error) {
	m, err := readMarker(root, unix.O_DIRECT)
	if errors.Is(err, unix.EINVAL) {
		return readMarker(root, 0)
	}
	return m, err
}

// readMarker opens the marker beneath the pool's directory. What may stand there, and what refuses
// it, is in the cases of TestReadMarker:
//
//	a link, also as its directory    RESOLVE_NO_SYMLINKS: ELOOP                  "a link to a good one", "a link as private directory"
//	a mount, also as its directory   RESOLVE_NO_XDEV: EXDEV                      "a mount as private directory"
//	a file as its directory          ENOTDIR                                     "a file as private directory"
//	a FIFO                           O_NONBLOCK, and its type after opening      "a FIFO"
//	a directory                      its type after opening                      "a directory"
//	a file of any length             its size, and what was read is counted      "a huge file"
//	a server that refuses root       EACCES or EPERM, which the caller tells     TestRefusedMarker
func readMarker(root int, flags uint64) (Marker, error) {
	fd, err := mounts.OpenBeneath(root, MarkerPath, unix.O_RDONLY|unix.O_NONBLOCK|flags)
	if errors.Is(err, unix.ENOENT) {
		return Marker{}, ErrNoMarker
	}
	if err != nil {
		return Marker{}, markerError(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Marker{}, fmt.Errorf("marker: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > markerMax {
		return Marker{}, fmt.Errorf("%w: not a regular file of at most %d bytes", ErrMarkerDamaged, markerMax)
	}
	data, err := readAligned(fd)
	if err != nil {
		return Marker{}, fmt.Errorf("marker: %w", err)
	}
	return DecodeMarker(data)
}

// markerError tells a planted link, mount or file in the marker's way from a sick filesystem.
func markerError(err error) error {
	for _, planted := range []error{unix.ELOOP, unix.EXDEV, unix.ENOTDIR, unix.ENXIO} {
		if errors.Is(err, planted) {
			return fmt.Errorf("%w: %w", ErrMarkerDamaged, err)
		}
	}
	return fmt.Errorf("marker: %w", err)
}

// readAligned reads with address and length that O_DIRECT takes on any device (open(2), NOTES).
func readAligned(fd int) ([]byte, error) {
	const block = 4096
	raw := make([]byte, 3*block)
	start := int(-uintptr(unsafe.Pointer(unsafe.SliceData(raw))) & (block - 1))
	page, data := raw[start:start+block], []byte(nil)
	for len(data) <= markerMax {
		n := 0
		err := openat.Retry(func() (err error) { n, err = unix.Read(fd, page); return err })
		if err != nil {
			return nil, err
		}
		data = append(data, page[:n]...)
		if n < block {
			break
		}
	}
	return data, nil
}
