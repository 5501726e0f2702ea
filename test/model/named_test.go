package model

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/crash/killer"
)

const (
	volumesPath = "/api/v1/persistentvolumes"
	leasesPath  = "/apis/coordination.k8s.io/v1/namespaces/" + ownNamespace + "/leases"
	// ownNamespace is the daemons'.
	ownNamespace = "hostpath-provisioner"
)

// named is a request's name in the model, with the real name of its volume.
func (on *machine) named(r *http.Request) string {
	name, one := strings.CutPrefix(r.URL.Path, volumesPath+"/")
	does := map[string]kind{http.MethodGet: getVolume, http.MethodPatch: releaseVolume, http.MethodDelete: deleteVolume}
	switch {
	case strings.HasPrefix(r.URL.Path, leasesPath):
		return on.namedLease(r)
	case r.URL.Path == volumesPath && r.Method == http.MethodPost:
		return op{kind: createVolume}.verb() + " " + string(killer.VolumeName.Find(body(r)))
	case r.URL.Path == volumesPath && !r.URL.Query().Has("labelSelector"):
		return op{kind: eachVolume}.verb()
	case one && r.Method == http.MethodPatch && bytes.Contains(body(r), []byte(`"finalizers":`)):
		return op{kind: holdVolume}.verb() + " " + name
	case one && r.Method == http.MethodPatch && r.Header.Get("Content-Type") == string(types.MergePatchType):
		return op{kind: writeCapacity}.verb() + " " + name
	case one && does[r.Method] != ended:
		return op{kind: does[r.Method]}.verb() + " " + name
	}
	return on.namedClaim(r)
}

// namedClaim is the name of a request about a claim.
func (on *machine) namedClaim(r *http.Request) string {
	claim, ofClaim := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/"+on.Namespace+"/persistentvolumeclaims/")
	status, ofStatus := strings.CutSuffix(claim, "/status")
	switch {
	case ofClaim && ofStatus && r.Method == http.MethodPatch:
		return op{kind: writeStatus}.verb() + " " + on.volumeOf(status)
	case ofClaim && r.Method == http.MethodGet:
		return op{kind: getClaim}.verb() + " " + claim
	}
	return on.namedSnapshot(r)
}

// takesLease is the name of a request by which a daemon takes the lease of a shared pool, or gives
// it up.
const takesLease = "takes the lease"

// namedLease is the name of a request about a lease or a tombstone, which is one, too. That a
// daemon renews its term is no step.
func (on *machine) namedLease(r *http.Request) string {
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, leasesPath), "/")
	switch {
	case r.Method == http.MethodGet && killer.VolumeName.MatchString(name):
		return op{kind: readTomb}.verb() + " " + name
	case r.Method == http.MethodGet && name != "":
		if on.looking.Load() {
			return ""
		}
		return op{kind: readLease}.verb()
	case r.Method == http.MethodDelete && killer.VolumeName.MatchString(name):
		return op{kind: writeTomb}.verb() + " " + name
	case r.Method != http.MethodPost && r.Method != http.MethodPut:
		return ""
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body(r), nil, nil)
	l, is := object.(*coordinationv1.Lease)
	switch {
	case err != nil || !is:
		return ""
	case killer.VolumeName.MatchString(l.Name):
		return op{kind: writeTomb}.verb() + " " + l.Name
	case on.mute.Load() || !on.renews(l):
		return takesLease
	}
	return ""
}

// body is a request's body, which can be read again.
func body(r *http.Request) []byte {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	return text
}
