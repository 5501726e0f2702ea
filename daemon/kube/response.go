package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// received is a pointer to an object that the API server sends.
type received interface {
	runtime.Object
	metav1.Object
}

// receiveObject sends a request and reads the response into an object. A success without the stored
// object of this name is an error, and so is one with another UID unless that is "": a load
// balancer in front of the API server responds with a page and 200, with 204, or with what it was
// sent.
func receiveObject(ctx context.Context, r *rest.Request, into received, name string, uid types.UID) error {
	result := r.Do(ctx)
	if err := result.Error(); err != nil {
		return ofRequest(r, err)
	}
	err := result.Into(into)
	if errors.As(err, new(apierrors.APIStatus)) || err == nil && is(into.GetName(), into.GetUID(), name, uid) {
		return err
	}
	return withoutObject(result, name)
}

// receiveDeletion is receiveObject for a deletion: the response is the object where a finalizer
// keeps it, or a Status.
func receiveDeletion(ctx context.Context, r *rest.Request, name string, uid types.UID) error {
	result := r.Do(ctx)
	if err := result.Error(); err != nil {
		return ofRequest(r, err)
	}
	got, err := result.Get()
	if errors.As(err, new(apierrors.APIStatus)) {
		return err
	}
	switch o := got.(type) {
	case *metav1.Status:
		if o.Details != nil && is(o.Details.Name, o.Details.UID, name, uid) {
			return nil
		}
	case metav1.Object:
		if is(o.GetName(), o.GetUID(), name, uid) {
			return nil
		}
	}
	return withoutObject(result, name)
}

// receiveList is receiveObject for a list, of which each real one has a version.
func receiveList(ctx context.Context, r *rest.Request, into interface {
	runtime.Object
	metav1.ListInterface
}) error {
	result := r.Do(ctx)
	if err := result.Error(); err != nil {
		return ofRequest(r, err)
	}
	err := result.Into(into)
	if errors.As(err, new(apierrors.APIStatus)) || err == nil && into.GetResourceVersion() != "" {
		return err
	}
	return withoutObject(result, "that was listed")
}

// ofRequest has an error that is neither a response nor the connection's say what it is of: the
// time of the request ended while it waited to be sent again, as the server had asked.
func ofRequest(r *rest.Request, err error) error {
	if errors.As(err, new(apierrors.APIStatus)) || errors.As(err, new(*url.Error)) {
		return err
	}
	return &url.Error{Op: "request", URL: r.URL().Redacted(), Err: err}
}

func is(gotName string, gotUID types.UID, name string, uid types.UID) bool {
	return gotName == name && gotUID != "" && (uid == "" || gotUID == uid)
}

// withoutObject is the error of a success whose response does not have the object. Whether the
// request was carried out is not known. It is an error of what responded, and not of the
// connection.
func withoutObject(result rest.Result, name string) error {
	var code int
	var contentType string
	result.StatusCode(&code).ContentType(&contentType)
	body, _ := result.Raw()
	const most = 100
	text := words.Line(fmt.Sprintf("the response with code %d (%s) does not have the object %s: %q",
		code, contentType, name, body[:min(len(body), most)]), words.MessageMax)
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: "WithoutObject", Message: text,
	}}
}

// What Refusal returns.
const (
	Unauthorized   = "Unauthorized"          // the API server does not accept the credential
	Forbidden      = "Forbidden"             // the identity has no right to it, or a policy refuses it
	NotTrusted     = "NotTrusted"            // the server's certificate is not of the kubeconfig's authority
	NotValidNow    = "NotValidNow"           // it is, and has expired or is not valid yet, by this host's clock
	OtherName      = "OtherName"             // it is for other names than the kubeconfig's address
	NoTLS          = "NoTLS"                 // what responds at an https address does not speak TLS
	WantsTLS       = "WantsTLS"              // what responds at an http address wants TLS
	NoCredential   = "NoCredential"          // the kubeconfig's program gave no credential
	ProxyAway      = "ProxyAway"             // the proxy on the way to the server did not respond
	Unreachable    = "Unreachable"           // no API server responded
	fromProgram    = "getting credentials: " // client-go, plugin/pkg/client/auth/exec
	anonymousQuote = `"system:anonymous"`
	plainRequest   = "Client sent an HTTP request to an HTTPS server" // net/http, server.go
)

// Refusal is the kind of a request's error; "" for all other errors, and for none.
func Refusal(err error) string {
	var invalid x509.CertificateInvalidError
	var network *net.OpError
	switch {
	case err == nil:
		return ""
	case apierrors.IsUnauthorized(err):
		return Unauthorized
	case apierrors.IsForbidden(err):
		return Forbidden
	case wantsTLS(err):
		return WantsTLS
	case fromServer(err):
		return ""
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return NotValidNow
	case errors.As(err, new(x509.HostnameError)):
		return OtherName
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return NotTrusted
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, new(tls.RecordHeaderError)):
		return NoTLS
	case strings.Contains(err.Error(), fromProgram):
		return NoCredential
	case errors.As(err, &network) && (network.Op == "proxyconnect" || network.Op == "socks connect"):
		return ProxyAway
	}
	return Unreachable
}

// Ignored reports whether an error says that the API server took the request for one without a
// credential.
func Ignored(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), anonymousQuote)
}

// wantsTLS reports whether an error is Go's HTTP server's to who speaks to its TLS without it, the
// API server's among them. It is no Status, so that client-go has its words in a cause alone.
func wantsTLS(err error) bool {
	cause, has := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	return has && strings.Contains(cause.Message, plainRequest)
}

// fromServer reports whether an error is a response of the API server.
func fromServer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// health is the health of the connection, by resource. It reports each failure once, and once that
// there is none any more. While the server cannot be reached all resources share one failure; what
// the server itself responds (forbidden, for example) is reported for each resource.
type health struct {
	mu       sync.Mutex
	report   func(error)
	failures map[string]string // the kind of failure by resource
}

func newHealth(report func(error)) *health {
	if report == nil {
		report = func(error) {}
	}
	return &health{report: report, failures: map[string]string{}}
}

func (h *health) failed(resource string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kind := failureKind(resource, err)
	known := false
	for _, k := range h.failures {
		known = known || k == kind
	}
	h.failures[resource] = kind
	switch {
	case known:
	case errors.Is(err, ErrCredentialRefused):
		h.report(err)
	case kind == notAccepted:
		h.report(fmt.Errorf("%w: %s", ErrCredentialRefused, Unauthorized))
	default:
		h.report(fmt.Errorf("%s: %w", resource, err))
	}
}

// is reports whether a resource has failed.
func (h *health) is(resource string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, failed := h.failures[resource]
	return failed
}

func (h *health) recovered(resource string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, failed := h.failures[resource]; !failed {
		return
	}
	delete(h.failures, resource)
	if len(h.failures) == 0 {
		h.report(nil)
	}
}

const unreachable, notAccepted = "unreachable", "refused"

// failureKind returns unreachable for every error that is not a response of the API server, and
// notAccepted where that does not accept the credential.
func failureKind(resource string, err error) string {
	switch {
	case apierrors.IsUnauthorized(err), errors.Is(err, ErrCredentialRefused):
		return notAccepted
	case !fromServer(err):
		return unreachable
	}
	return resource + " " + string(apierrors.ReasonForError(err))
}
