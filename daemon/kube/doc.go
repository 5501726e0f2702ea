// Package kube is where the daemon meets the Kubernetes API: it watches what concerns this node,
// creates and removes volume objects, and writes events. Everything of client-go stays in here.
//
// What a node costs must not grow with the cluster. The library's informers hold every claim there
// is, so a Informer replaces them: it asks its keep function about each object and forgets the others
// at once. For the same reason there is no typed clientset here, which brings the types of fifty API
// groups with it; one rest.RESTClient for each of the three groups that we use is enough.
//
// Events have a small writer of their own. client-go's recorder drops an event, any event, when its
// channel is full, makes a new object of each repeat whose time stamp differs, and cannot stand
// back while volumes are made. Here a repeat becomes a count, Normal events wait for a quiet moment,
// and a Warning that cannot be kept is counted and told.
//
// It will not decide anything about a claim or a volume, limit its own requests while all is well
// (only errors slow it down), log, or read the API's answer from its own memory before something
// that cannot be undone: GetClaim and GetVolume always ask.
package kube
