package model

import "fmt"

// kind is what a step of the product's work asks for.
type kind uint8

const (
	ended          kind = iota // nothing more: the work has ended
	cachedClaim                // a claim that the watch brought
	cachedVolume               // a volume object that the watch brought
	cachedWatched              // whether the watch of claims is current
	cachedCluster              // whether the API server is another cluster's: a request that changes nothing and is not held
	cachedContent              // the snapshot's content that the watch brought
	getClaim                   // from the API server
	getVolume                  // from the API server
	eachVolume                 // from the API server
	listVolumes                // the same, with their versions
	getContent                 // from the API server
	getSnapshot                // from the API server
	createVolume               // with what in which cell
	releaseVolume              // takes the product's finalizer off
	holdVolume                 // puts the product's finalizer on, if it is unchanged
	deleteVolume               // if it is unchanged
	writeStatus                // of a claim, if it is unchanged
	writeCapacity              // of a volume object, if it is unchanged
	writeContent               // if it is unchanged
	releaseContent             // takes the product's finalizer off, if it is unchanged
	writeTomb                  // if there is none
	markVolume                 // if it is unchanged, by adopt
	readTomb                   // from the API server
	readLease                  // from the API server
	fewVolumes                 // from the API server: those that are kept for claims
	onDisk                     // a call of daemon/disk/volume
)

// local reports whether a step asks nothing outside of the daemon: nothing else happens before it.
func (k kind) local() bool {
	return k == cachedClaim || k == cachedVolume || k == cachedWatched || k == cachedCluster || k == cachedContent
}

// writes reports whether a step changes the API server's data.
func (k kind) writes() bool { return k >= createVolume && k <= markVolume }

var kindNames = map[kind]string{
	getContent: "reads the content of", getSnapshot: "reads the VolumeSnapshot of", writeContent: "writes the content of",
	releaseContent: "takes its finalizer off the content of",
	getClaim:       "reads claim", getVolume: "reads volume object", eachVolume: "reads all volume objects", readLease: "reads the lease",
	fewVolumes:   "reads the volume objects, if they are few",
	createVolume: "creates volume object", releaseVolume: "takes its finalizer off volume",
	holdVolume: "puts its finalizer on volume", deleteVolume: "deletes volume object",
	writeStatus: "writes the status of the claim of", writeCapacity: "writes the size of volume object",
	listVolumes: "reads all volume objects", markVolume: "marks volume object",
	writeTomb: "writes the tombstone of", readTomb: "reads the tombstone of",
}

// op is one step that the product's work asks for.
type op struct {
	kind    kind
	at      int    // a slot or a cell
	with    object // that the product has of the object
	grow    growth // that the claim is to have, of the version that the product has
	disk    call
	content content
}

// noCell is in the place of a cell where there is none.
const noCell = -1

// call is a call of daemon/disk/volume.
type call struct {
	name string
	cell int
	spec uint32 // of Create (disks.specs); of Exists 1 for the other pattern; of Resize the size, of ResizeFrom both
	pool uint8
	host uint8 // the node, in a shared pool
	on   seat  // by which filesystem the gate was opened
}

// verb is what is asked for, without of what.
func (o op) verb() string { return kindNames[o.kind] }

func (o op) String() string {
	switch o.kind {
	case ended:
		return "begin its next piece of work"
	case onDisk:
		if o.disk.cell == noCell {
			return "calls " + o.disk.name + " of " + poolName(int(o.disk.pool))
		}
		return "calls " + o.disk.name + " of " + nameOf(o.disk.cell)
	case getClaim:
		return kindNames[o.kind] + " " + slotName(o.at)
	case getContent, getSnapshot, writeContent, releaseContent:
		return kindNames[o.kind] + " " + snapshotHandle
	case eachVolume, listVolumes, readLease, fewVolumes:
		return kindNames[o.kind]
	}
	return fmt.Sprint(kindNames[o.kind], " ", nameOf(o.at))
}

// response is what a step has returned. Equal responses let the product do the same.
type response struct {
	fault   fault
	claim   claim
	volume  object
	content content
	yes     bool
	etcd    uint32 // of eachVolume (tree.etcds)
	disk    uint32 // of a call (disks.results)
	stays   uint8  // of which cells the watch brought before that the volume is to stay
	role    role   // in the shared pool, from then on
	gate    look   // of the first pool since then
	memory  uint32 // what the process knows since another worker of it worked (tree.memories), 0: none did
}

// fault is an error of the API.
type fault uint8

const (
	fine     fault = iota
	conflict       // the object was changed
	lost           // no response: it was done, or not
	refused        // it was certainly not done
)
