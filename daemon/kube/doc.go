// Package kube is the daemon's client of the Kubernetes API. It watches the objects that concern
// this node, creates and removes PersistentVolumes, writes Events, and reads and writes Leases. No
// other package of the daemon sends requests with client-go.
//
// What a node costs must not grow with the cluster. The shared informers of client-go keep every
// claim of the cluster in memory: 225 MiB where the Informer of this package needs 20
// (test/cost). An Informer asks a filter about each object and keeps those that pass. For the
// same reason there is no typed clientset, which links the types of fifty API groups: one
// rest.RESTClient for each of the three groups in use is enough.
//
// Events are written by a queue of this package and not by client-go's recorder (tools/record). The
// recorder has room for 1,000 events whatever their type, gives an event up after two minutes
// without the server, and at once when the server responds with 403 or 5xx. After a restart it
// writes a new object for each repeat. TestRecorders measures both: of 1,000 Warnings among 10,000
// events in ten minutes without the server the recorder wrote 100, and this queue all.
//
// The package does not decide anything about a claim or a volume, does not log, and does not limit
// the rate of its requests: only errors slow it down. It does not read from its own store before an
// act that cannot be undone: GetClaim and GetVolume always send a request.
package kube
