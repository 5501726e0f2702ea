package storagecapacity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"time"
)

// Object is a CSIStorageCapacity of the daemons of one provisioner.
type Object struct {
	Name      string
	Class     string
	Node      string   // whose daemon publishes it, as a label's value; "" for that of the nodes that publish nothing
	Hostnames []string // values of the hostname label of the nodes that it is for
	Owner     Owner    // with which it goes
	Bytes     int64    // what one more volume can get; below 0 in an object that was damaged
	Closed    string   // the reason why its pool takes no volumes, "" if it does; for people
}

// Owner is the object that owns another: the Node, or the CSIDriver.
type Owner struct{ Name, UID string }

// Unbounded is the size of the object for the nodes that publish nothing.
const Unbounded = math.MaxInt64

// Driver is the CSIDriver of the provisioner's name.
type Driver struct {
	UID, Version string
	Ours         bool      // it is of this program's manifests
	Enabled      bool      // storageCapacity
	Strict       bool      // an administrator says that every node that has a daemon publishes
	Reviewed     time.Time // when a daemon last began a review; zero is never
	Publishing   int       // how many nodes published something, when that was reviewed
}

// API reads and writes objects of the daemon's provisioner. What does not exist is no error.
type API interface {
	// Capacities returns the objects that this node publishes (its label value), or all with "".
	Capacities(ctx context.Context, node string) ([]Object, error)
	// CreateCapacity creates an object, or sets the size of the one that has the name.
	CreateCapacity(ctx context.Context, o Object) error
	// UpdateCapacity sets the size of an object that exists; found is false if it does not.
	UpdateCapacity(ctx context.Context, o Object) (found bool, err error)
	DeleteCapacity(ctx context.Context, name string) error
	// Driver returns the CSIDriver, nil if there is none.
	Driver(ctx context.Context) (*Driver, error)
	// SetDriver writes Enabled, Reviewed and Publishing if the object is unchanged; won is false if
	// it is not.
	SetDriver(ctx context.Context, d Driver) (won bool, err error)
	// Hostnames returns the hostname label of every Node of the cluster that has one, by the Node's
	// name.
	Hostnames(ctx context.Context) (map[string]string, error)
}

// objectName is the name of an object: the same parts give the same name.
func objectName(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return "hostpath-provisioner-" + hex.EncodeToString(sum[:12])
}

// NodeObject is the object of a class on a node. What cannot be changed in the API is in the name.
func NodeObject(provisioner, node, hostname, class string, owner Owner, bytes uint64, closed string) Object {
	return Object{
		Name: objectName(provisioner, node, hostname, class, owner.UID), Class: class, Node: node, Hostnames: []string{hostname},
		Owner: owner, Bytes: int64(min(bytes, math.MaxInt64)), Closed: closed,
	}
}

// othersObject is the object of a class for nodes that publish nothing.
func othersObject(provisioner, class string, owner Owner, hostnames []string) Object {
	hostnames = slices.Compact(slices.Sorted(slices.Values(hostnames)))
	return Object{
		Name: objectName(append([]string{provisioner, "", class, owner.UID}, hostnames...)...), Class: class, Hostnames: hostnames,
		Owner: owner, Bytes: Unbounded,
	}
}
