package cost

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// simulatedNode has the watches of a provisioner on a connection of its own.
type simulatedNode struct {
	client *http.Client
	host   string
	bytes  atomic.Int64
	cut    atomic.Int64
}

// simulate begins the watches of so many nodes, and returns when the API server has accepted all of
// them.
func (s *scale) simulate(ctx context.Context, name string, n int) (all []*simulatedNode) {
	config := s.Cluster.Config()
	now, err := s.Client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{Limit: 1})
	s.Must(err, "listing claims")
	ctx, cancel := context.WithCancel(ctx)
	s.Cleanup(func() error { cancel(); return nil })
	for i := range n {
		transport, err := ownTransport(config)
		s.Must(err, "connecting a simulated node")
		node := &simulatedNode{client: &http.Client{Transport: transport}, host: config.Host}
		for _, path := range watchesOf(name, fmt.Sprintf("simulated-%03d", i)) {
			body, err := node.watch(ctx, path, now.ResourceVersion)
			s.Must(err, "watching for a simulated node")
			go s.keepWatch(ctx, node, path, body)
		}
		all = append(all, node)
	}
	return all
}

// ownTransport is not shared with other clients of this process, as those of client-go are.
func ownTransport(config *rest.Config) (http.RoundTripper, error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	return rest.HTTPWrappersForConfig(config, &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true})
}

// watchesOf are the paths that a node's provisioner watches.
func watchesOf(name, node string) []string {
	const (
		claims, volumes, classes = "/api/v1/persistentvolumeclaims?", "/api/v1/persistentvolumes?", "/apis/storage.k8s.io/v1/storageclasses?"
		policies                 = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
	)
	if name == library {
		return []string{claims, volumes, classes}
	}
	all := []string{
		volumes + "labelSelector=" + url.QueryEscape(plan.NodeLabel+"="+plan.NodeLabelValue(node)), classes,
		"/api/v1/nodes?fieldSelector=" + url.QueryEscape("metadata.name="+node),
	}
	if name == daemonAll {
		return append(all, claims)
	}
	selector := claimindex.SelectionOf(plan.Self{Provisioner: plan.DefaultProvisioner, Node: node}).String()
	one := "?fieldSelector=" + url.QueryEscape("metadata.name="+claimindex.Name)
	return append(all, claims+"labelSelector="+url.QueryEscape(selector), policies+one, policies[:len(policies)-len("policies")]+"policybindings"+one)
}

// watch begins a watch, as client-go asks for it.
func (n *simulatedNode) watch(ctx context.Context, path, version string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.host+path+"&watch=true&allowWatchBookmarks=true&resourceVersion="+version, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON)
	response, err := n.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s: %s", path, response.Status)
	}
	return response.Body, nil
}

// keepWatch reads a watch, and begins it again whenever the API server ends it: it does that to a
// slow reader, and counts as one that was cut.
func (s *scale) keepWatch(ctx context.Context, node *simulatedNode, path string, body io.ReadCloser) {
	for {
		_, _ = io.Copy(countingWriter{io.Discard, &node.bytes}, body)
		_ = body.Close()
		if ctx.Err() != nil {
			return
		}
		node.cut.Add(1)
		now, err := s.Client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			body, err = node.watch(ctx, path, now.ResourceVersion)
		}
		if err != nil {
			if ctx.Err() == nil {
				s.Fault("watches that could not be begun again", "%v", err)
			}
			return
		}
	}
}

func received(all []*simulatedNode) (sum int64) {
	for _, n := range all {
		sum += n.bytes.Load()
	}
	return sum
}

func cuts(all []*simulatedNode) (sum int) {
	for _, n := range all {
		sum += int(n.cut.Load())
	}
	return sum
}
