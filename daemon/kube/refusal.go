package kube

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
