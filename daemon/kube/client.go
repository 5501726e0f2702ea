package kube

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

// component is the name in events and requests, whatever the name of the provisioner is.
const component = "hostpath-provisioner"

// DefaultNamespace is the namespace in which `hostpath-provisioner manifests` puts the
// ServiceAccount of the daemon.
const DefaultNamespace = "hostpath-provisioner"

// callTimeout is the limit of every request except watches. The API server's own limit is a minute
// (--request-timeout).
const callTimeout = 30 * time.Second

// Options of a Client.
type Options struct {
	// Kubeconfig is the path of the kubeconfig. FollowKubeconfig reads it again when it changes,
	// and the files that it names.
	Kubeconfig string
	// Overrides are what an administrator said beside the kubeconfig, which may be several files
	// then, as kubectl takes them; nil for a daemon. FollowKubeconfig ignores it.
	Overrides *clientcmd.ConfigOverrides
	// Self is this node, and whose classes, claims and volumes are watched.
	plan.Self
	// Namespace is where the daemon's own objects are, DefaultNamespace if empty.
	Namespace string
	// TokenFile has the renewed token of RunRenewal. It is used in place of the kubeconfig's where
	// that is of the same identity, older, and ends earlier. "" for none.
	TokenFile string
	// UserAgent is sent with each request. Empty: hostpath-provisioner.
	UserAgent string
	// OnHealth may be nil. It is called once for each kind of failure, however often it occurs, and
	// with nil when none is left. Calls are serial. It must not block, and must not call the
	// client.
	OnHealth func(error)
	// OnEvent may be nil. It is called after each attempt to write an event about an object: with
	// nil if it was written, else with an error that may pass.
	OnEvent func(about corev1.ObjectReference, err error)
	// OnEventLost may be nil. It is called when an event about an object is given up, with nil if
	// no caller misses it.
	OnEventLost func(about corev1.ObjectReference, err error)
	// OnRefused may be nil. It is called with the reason of each request that the API server
	// refused, or "Unreachable"; concurrently.
	OnRefused func(reason string)

	// wrap lets a test record requests and fake responses.
	wrap func(http.RoundTripper) http.RoundTripper
	// renewLook is the constant's value in a test.
	renewLook time.Duration
}

// Client talks to one API server. All its methods may be called concurrently.
type Client struct {
	options             Options
	groups              map[schema.GroupVersion]rest.Interface
	params              runtime.ParameterCodec
	decoder             runtime.Decoder // of what the server sends, protobuf or JSON
	connection          *connection
	contacts            []func() time.Time // LastContact of each informer
	health              *health
	nodeUID             atomic.Pointer[string] // of the Node of Options.Node, "" when it was deleted; nil: not known
	inFlight            inFlight
	breaker             breaker
	tombstones          *tombstoneGC
	tombstoneGCInterval time.Duration // a test has a shorter one
	events              *eventWriter
}

// New reads the kubeconfig and sends no request: a server that cannot be reached is not an error
// here. The error is a *KubeconfigError, or names the file; one that does not exist matches
// fs.ErrNotExist.
func New(o Options) (*Client, error) {
	if o.OnRefused == nil {
		o.OnRefused = func(string) {}
	}
	if o.OnEvent == nil {
		o.OnEvent = func(corev1.ObjectReference, error) {}
	}
	if o.OnEventLost == nil {
		o.OnEventLost = func(corev1.ObjectReference, error) {}
	}
	sends, config, err := newConnection(o)
	if err != nil {
		return nil, err
	}
	transport := &http.Client{Transport: sends, Timeout: config.Timeout}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	c := &Client{options: o, params: runtime.NewParameterCodec(scheme), connection: sends, health: newHealth(o.OnHealth)}
	c.decoder = serializer.NewCodecFactory(scheme).UniversalDeserializer()
	c.groups = map[schema.GroupVersion]rest.Interface{}
	for _, version := range []schema.GroupVersion{core, storage, admission, coordination, snapshots} {
		if c.groups[version], err = group(config, transport, scheme, version); err != nil {
			return nil, fmt.Errorf("kubeconfig %q: %w", o.Kubeconfig, err)
		}
	}
	c.events, c.tombstones, c.tombstoneGCInterval = newEventWriter(c), newTombstoneGC(), tombstoneGCInterval
	return c, nil
}

// tune removes client-go's limit of 5 requests a second and requests protobuf. Responses of more
// than 128 KiB come compressed, because net/http requests gzip and decompresses by itself.
func tune(config *rest.Config, o Options) {
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.UserAgent = o.UserAgent
	if config.UserAgent == "" {
		config.UserAgent = component
	}
	// The default handler logs the server's warnings, and this package does not log.
	config.WarningHandler = rest.NoWarnings{}
	if o.wrap != nil {
		config.Wrap(o.wrap)
	}
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, storagev1.AddToScheme, coordinationv1.AddToScheme, admissionv1.AddToScheme, snapshotapi.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

func group(base *rest.Config, transport *http.Client, scheme *runtime.Scheme,
	version schema.GroupVersion) (rest.Interface, error) {
	config := rest.CopyConfig(base)
	config.APIPath, config.GroupVersion = "/apis", &version
	if version.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientForConfigAndClient(config, transport)
}

// Claims returns an informer of the claims of all namespaces, transformed by plan.LeanClaim.
// onChange may be nil.
func (c *Client) Claims(keep func(*corev1.PersistentVolumeClaim) bool, onChange func(old, new *corev1.PersistentVolumeClaim)) *Informer[*corev1.PersistentVolumeClaim] {
	return newInformer(c, claimKind.source(c, selection{}), keep, plan.LeanClaim, onChange)
}

// Volumes returns an informer of the volumes of Options.Provisioner and Options.Aliases whose
// plan.NodeLabel has this value (plan.NodeLabelValue of the node's name). The API server filters by
// the label; daemons with other provisioner names on the same node share it. onChange may be nil.
func (c *Client) Volumes(node string, onChange func(old, new *corev1.PersistentVolume)) *Informer[*corev1.PersistentVolume] {
	return c.volumes(plan.NodeLabel+"="+node, onChange)
}

// VolumesOfScope returns an informer of the volumes of Options.Provisioner and Options.Aliases in
// these pools whose plan.ScopeLabel has this value, whichever node made them. No pools means any.
// onChange may be nil.
func (c *Client) VolumesOfScope(scope string, pools []string, onChange func(old, new *corev1.PersistentVolume)) *Informer[*corev1.PersistentVolume] {
	labels := plan.ScopeLabel + "=" + scope
	if len(pools) > 0 {
		labels += "," + plan.PoolLabel + " in (" + strings.Join(pools, ",") + ")"
	}
	return c.volumes(labels, onChange)
}

// VolumesOfPool returns an informer of all volumes of Options.Provisioner and Options.Aliases in
// pools of this name.
func (c *Client) VolumesOfPool(pool string) *Informer[*corev1.PersistentVolume] {
	return c.volumes(plan.PoolLabel+"="+pool, nil)
}

func (c *Client) volumes(labels string, onChange func(old, new *corev1.PersistentVolume)) *Informer[*corev1.PersistentVolume] {
	source := volumeKind.source(c, selection{labels: labels})
	keep := func(pv *corev1.PersistentVolume) bool {
		return plan.Unattributed(pv) || c.options.Serves(pv.Annotations[plan.ProvisionedBy])
	}
	return newInformer(c, source, keep, plan.LeanVolume, onChange)
}

// Classes returns an informer of the StorageClasses of Options.Provisioner and Options.Aliases.
// onChange may be nil.
func (c *Client) Classes(onChange func(old, new *storagev1.StorageClass)) *Informer[*storagev1.StorageClass] {
	keep := func(class *storagev1.StorageClass) bool {
		return c.options.Serves(class.Provisioner)
	}
	return newInformer(c, classKind.source(c, selection{}), keep, plan.LeanClass, onChange).WatchList()
}

// OwnNode returns an informer of the one Node that Options.Node names. onChange may be nil.
func (c *Client) OwnNode(onChange func(old, new *corev1.Node)) *Informer[*corev1.Node] {
	source := nodeKind.source(c, selection{fields: "metadata.name=" + c.options.Node})
	return newInformer(c, source, nil, plan.LeanNode, func(was, now *corev1.Node) {
		c.nodeChanged(was, now)
		if onChange != nil {
			onChange(was, now)
		}
	}).WatchList()
}

// PendingPods returns an informer of the pods that wait to start on the node that Options.Node
// names, as plan.LeanPod has them. onChange may be nil. The API server filters by both, and has an
// index of the node (pkg/registry/core/pod, NodeNameTriggerFunc).
func (c *Client) PendingPods(
	keep func(*corev1.Pod) bool, onChange func(old, new *corev1.Pod),
) *Informer[*corev1.Pod] {
	pending := "spec.nodeName=" + c.options.Node + ",status.phase=" + string(corev1.PodPending)
	s := NewInformer(podKind.source(c, selection{fields: pending}), keep, onChange).WatchList()
	s.transform = plan.LeanPod
	return s
}

func newInformer[T Object](c *Client, from *source, keep func(T) bool, transform func(T) T, onChange func(old, new T)) *Informer[T] {
	s := NewInformer(from, keep, onChange)
	s.transform, s.breaker = transform, &c.breaker
	s.onError = func(err error) { c.health.failed(from.resource, err) }
	s.onHealthy = func() { c.health.recovered(from.resource) }
	c.contacts = append(c.contacts, s.LastContact)
	return s
}
