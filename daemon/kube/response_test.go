package kube

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/presence"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/storagecapacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

// strange are successes that no API server sends. The body of a request is sent back for "echo".
var strange = map[string]struct {
	code              int
	contentType, body string
}{
	"a page":                  {200, "text/html", "<html>welcome</html>"},
	"a page that says JSON":   {200, "application/json", "<html>welcome</html>"},
	"no content":              {204, "", ""},
	"an empty page":           {200, "application/json", ""},
	"an empty object":         {200, "application/json", "{}"},
	"a success without words": {200, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Success"}`},
	"another object":          {200, "application/json", `{"metadata":{"name":"other","uid":"other"}}`},
	"what was sent":           {201, "", "echo"},
}

func errOf[T any](_ T, err error) error { return err }

// strangeCalls are all that read the object of a response.
func strangeCalls(ctx context.Context, c *Client) map[string]func() error {
	p := c.Publishing("strange")
	pv := volume("strange", "1", plan.Finalizer)
	pv.UID, pv.ResourceVersion = "u", "1"
	created := volume("strange", "1")
	bare := pv.DeepCopy()
	bare.Finalizers = nil
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
		Name: "strange", UID: "u", ResourceVersion: "1"}}
	content := &snapshotapi.Content{ObjectMeta: metav1.ObjectMeta{Name: "strange", UID: "u",
		ResourceVersion: "1"}}
	content.Status = &snapshotapi.ContentStatus{}
	ref := corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default",
		Name: "strange", UID: "u"}
	capacity := storagecapacity.Object{Name: "strange", Class: "strange", Node: "node-a"}
	lease := leadership.Lease{Name: "strange", Pool: "fast"}
	known := lease
	known.Version, known.Term.UID = "1", "u"
	written := event{namespace: "default", name: "strange", regarding: ref, count: 1, pending: 1,
		last: time.Now()}
	fresh := written
	fresh.count = 0
	return map[string]func() error{
		"create a volume":  func() error { return errOf(c.CreateVolume(ctx, created)) },
		"delete a volume":  func() error { return c.DeleteVolume(ctx, bare) },
		"release a volume": func() error { return errOf(c.ReleaseFinalizer(ctx, pv)) },
		"hold a volume":    func() error { return errOf(c.HoldVolume(ctx, bare)) },
		"remove a volume":  func() error { return c.RemoveVolume(ctx, pv) },
		"resize a volume": func() error {
			return c.SetCapacity(ctx, pv,
				resource.MustParse("2Gi"))
		},
		"mark a volume": func() error {
			return errOf(c.PatchVolume(ctx, pv,
				plan.MetadataPatch{}))
		},
		"check a volume": func() error { return c.CheckVolume(ctx, created) },
		"try the index":  func() error { return errOf(c.TryVolumeIndex(ctx, pv)) },
		"read a volume":  func() error { return errOf(c.GetVolume(ctx, "strange")) },
		"read a claim":   func() error { return errOf(c.GetClaim(ctx, "default", "strange")) },
		"choose a node":  func() error { return errOf(c.SetSelectedNode(ctx, claim, "node-a")) },
		"write a status": func() error {
			_, err := c.PatchClaimStatus(ctx, claim, plan.ClaimStatus{})
			return err
		},
		"label a claim":        func() error { return errOf(c.labelClaim(ctx, claim, "x")) },
		"find a node":          func() error { return errOf(c.NodeExists(ctx, "strange")) },
		"identify the cluster": func() error { return errOf(c.ClusterID(ctx)) },
		"read a lease":         func() error { return errOf(c.ReadLease(ctx, "strange")) },
		"make a lease":         func() error { return errOf(c.WriteLease(ctx, lease)) },
		"renew a lease":        func() error { return errOf(c.WriteLease(ctx, known)) },
		"write a tombstone": func() error {
			_, err := c.WriteTombstone(ctx, plan.Tombstone{PV: "strange"})
			return err
		},
		"read a node's lease": func() error { return errOf(c.ReadNodeLease(ctx)) },
		"make a node's lease": func() error {
			return errOf(c.WriteNodeLease(ctx, presence.Lease{}))
		},
		"renew a node's lease": func() error {
			return errOf(c.WriteNodeLease(ctx, presence.Lease{UID: "u", Version: "1"}))
		},
		"read a tombstone": func() error { return errOf(c.ReadTombstone(ctx, "strange")) },
		"delete tombstones": func() error {
			return c.deleteTombstones(ctx, []tombstone{{name: "strange", uid: "u"}})
		},
		"take a content": func() error { return errOf(c.TakeContent(ctx, content, "node-a")) },
		"write a content": func() error {
			return c.SetContentStatus(ctx, content,
				snapshotapi.ContentStatus{})
		},
		"clear a content":    func() error { return errOf(c.ClearContentStatus(ctx, content)) },
		"release a content":  func() error { return errOf(c.ReleaseContent(ctx, content)) },
		"read a content":     func() error { return errOf(c.GetContent(ctx, "strange")) },
		"publish a capacity": func() error { return p.CreateCapacity(ctx, capacity) },
		"change a capacity":  func() error { return errOf(p.UpdateCapacity(ctx, capacity)) },
		"delete a capacity":  func() error { return p.DeleteCapacity(ctx, "strange") },
		"read the driver":    func() error { return errOf(p.Driver(ctx)) },
		"write the driver": func() error {
			_, err := p.SetDriver(ctx, storagecapacity.Driver{UID: "u"})
			return err
		},
		"count the nodes":     func() error { return errOf(c.NodeCount(ctx)) },
		"list the hostnames":  func() error { return errOf(c.Hostnames(ctx)) },
		"list the capacities": func() error { return errOf(p.Capacities(ctx, "node-a")) },
		"list some claims": func() error {
			_, _, err := c.triesLabels(ctx)
			return err
		},
		"list locks": func() error {
			return c.EachLock(ctx, "strange", func(*coordinationv1.Lease) {})
		},
		"list volumes": func() error {
			return c.EachVolume(ctx, func(*corev1.PersistentVolume) {})
		},
		"list pods": func() error {
			return c.EachPod(ctx, "", "", func(*corev1.Pod) {})
		},
		"make an event":   func() error { return errOf(c.writeEvent(ctx, fresh)) },
		"repeat an event": func() error { return errOf(c.writeEvent(ctx, written)) },
		"request a token": func() error {
			_, err := requestToken(ctx, c.groups[core], Credential{Namespace: "default", Account: "strange",
				Node: "node-a"}, time.Hour)
			return err
		},
	}
}

// A success without the object is none, whatever is in its place.
func TestStrangeSuccesses(t *testing.T) {
	c, w := newClient(t, Options{Self: plan.Self{Provisioner: "strange", Node: "node-a"}})
	for name, s := range strange {
		w.intercept(func(r *http.Request) (*http.Response, error) {
			response := &http.Response{StatusCode: s.code, Request: r, Header: http.Header{},
				Body: io.NopCloser(strings.NewReader(s.body))}
			if s.contentType != "" {
				response.Header.Set("Content-Type", s.contentType)
			}
			if s.body == "echo" {
				response.Body = io.NopCloser(strings.NewReader(""))
				if r.Body != nil {
					response.Header.Set("Content-Type", r.Header.Get("Content-Type"))
					response.Body = r.Body
				}
			}
			return response, nil
		})
		for what, call := range strangeCalls(t.Context(), c) {
			if err := call(); err == nil {
				t.Errorf("%s: %s is a success", what, name)
			}
		}
	}
}

// The same object with another UID is another one.
func TestSuccessWithAnotherObject(t *testing.T) {
	c, w := newClient(t, Options{})
	ns := namespace(t)
	newClaim(t, plane, ns, "claim", "1")
	claim, _, _ := selected(t, c, ns, "claim")
	w.intercept(func(r *http.Request) (*http.Response, error) {
		body := `{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"namespace":"` + ns + `","name":"claim","uid":"another"}}`
		return &http.Response{StatusCode: 200, Request: r,
			Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
	})
	if won, err := c.SetSelectedNode(t.Context(), claim, "node-a"); won || err == nil {
		t.Errorf("won %t, %v", won, err)
	}
}
