package clustercheck

import (
	"fmt"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

func wrong(reason, format string, args ...any) Line {
	return Line{Status: Wrong, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func warning(reason, format string, args ...any) Line {
	return Line{Status: Warning, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// The API server.

func kubeconfigUnusable(f Facts) (Line, bool) {
	return wrong(ReasonKubeconfigUnusable, "%s", errorText(f.API.Err)), f.API.Refusal == RefusalKubeconfig
}

// refusal is the rule of one kind of error, of which says is told with the server and the error.
func refusal(kind, reason, says string) rule {
	return func(f Facts) (Line, bool) {
		return wrong(reason, says, f.API.Server, errorText(f.API.Err)), f.API.Refusal == kind
	}
}

// refusals are the errors of a first request, of which one holds.
var refusals = []rule{
	refusal("NotTrusted", ReasonServerNotTrusted, "the certificate of %s is not of the authority in the kubeconfig: %s"),
	refusal("NotValidNow", ReasonServerCertificateTime, "the certificate of %s is not valid at this host's time: %s"),
	refusal("OtherName", ReasonServerNameDiffers, "the certificate of %s is for other names: %s"),
	refusal("NoTLS", ReasonServerWithoutTLS, "what responds at %s does not speak TLS: %s"),
	refusal("WantsTLS", ReasonServerWantsTLS, "%s wants TLS, and the address begins with http: %s"),
	refusal("NoCredential", ReasonNoCredential, "the program that the kubeconfig names gave no credential for %s: %s"),
	refusal("ProxyAway", ReasonProxyUnreachable, "the proxy on the way to %s does not respond: %s"),
	refusal("Unauthorized", ReasonCredentialRefused, "%s does not accept the credential (%s): it has ended, its Node object is gone, or it is another cluster's"),
	refusal("Unreachable", ReasonServerUnreachable, "%s does not respond: %s"),
}

func serverFails(f Facts) (Line, bool) {
	return wrong(ReasonServerFails, "%s responds with an error: %s", f.API.Server, errorText(f.API.Err)), f.API.Err != nil
}

// apiGood tells what the server lacks that users miss. What else an older one lacks the check of it
// tells: policies, a token that is bound to its node, the claim index.
func apiGood(f Facts) string {
	says := fmt.Sprintf("%s responds, with Kubernetes %s", f.API.Server, words.Name(f.API.Version))
	var minor int
	if _, err := fmt.Sscanf(f.API.Version, "v1.%d.", &minor); err != nil {
		return says
	}
	for _, lack := range lacks {
		if minor < lack.before {
			says += fmt.Sprintf("; it is before 1.%d: %s", lack.before, lack.says)
		}
	}
	return says
}

// lacks are the first minor versions with what users miss in earlier ones, as their defaults are
// (pkg/features: RecoverVolumeExpansionFailure, VolumeAttributesClass).
var lacks = []struct {
	before int
	says   string
}{
	{32, "the request of a claim that cannot grow cannot be lowered again"},
	{34, "a VolumeAttributesClass that a claim names is dropped"},
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return words.Line(err.Error(), errorMax)
}

const errorMax = 300 // of an error that another program wrote

// The credential.

func credentialExpired(f Facts) (Line, bool) {
	c := f.Credential
	return wrong(ReasonCredentialExpired, "it ended %s, %s ago", moment(c.Expires), span(f.Now.Sub(c.Expires))), !c.Expires.IsZero() && !c.Expires.After(f.Now)
}

// credentialEnds: of one that renews itself three quarters of its life are over at most when it
// does.
func credentialEnds(f Facts) (Line, bool) {
	c := f.Credential
	left, how := c.Expires.Sub(f.Now), ", and nothing renews it"
	switch {
	case f.renewalUnknown():
		how = ""
	case f.Rights.Renewal:
		how = ", and the daemon has not renewed it"
	}
	return warning(ReasonCredentialEnds, "it ends %s, in %s%s", moment(c.Expires), span(left), how), !c.Expires.IsZero() && left < c.Expires.Sub(c.Issued)/4
}

func credentialEndless(f Facts) (Line, bool) {
	return warning(ReasonCredentialEndless, "it is a token that never ends, and is bound to no node"), f.serviceAccount() && f.Identity.Node == "" && f.Credential.Expires.IsZero()
}

func tokenGood(f Facts) string {
	c := f.Credential
	if c.Expires.IsZero() {
		return "the credential does not say when it ends"
	}
	how := "; nothing renews it"
	switch {
	case f.renewalUnknown():
		how = ""
	case f.Rights.Renewal:
		how = "; the daemon renews it"
	}
	return fmt.Sprintf("it ends %s, in %s%s", moment(c.Expires), span(c.Expires.Sub(f.Now)), how)
}

// renewalUnknown reports whether the reviews of the rights are missing.
func (f Facts) renewalUnknown() bool { return f.API.Err != nil || f.Failed[CheckRights] != nil }

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// span is a duration in the largest unit of which there are two.
func span(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", d/time.Hour)
	}
	return fmt.Sprintf("%d minutes", d/time.Minute)
}

// The identity.

func (f Facts) ownIdentity() bool {
	return f.Identity.User == "system:serviceaccount:"+f.Configured.Namespace+":hostpath-provisioner"
}

func (f Facts) serviceAccount() bool {
	return strings.HasPrefix(f.Identity.User, "system:serviceaccount:")
}

func credentialIgnored(f Facts) (Line, bool) {
	return wrong(ReasonCredentialIgnored, "the API server ignores the credential, and takes each request for one without"), f.Identity.Ignored
}

func boundToOtherNode(f Facts) (Line, bool) {
	return wrong(ReasonBoundToOtherNode, "its token is bound to the Node %s, and this host is node %s", words.Name(f.Identity.Node), f.Configured.Node), f.Identity.Node != "" && f.Identity.Node != f.Configured.Node
}

func otherIdentity(f Facts) (Line, bool) {
	return warning(ReasonOtherIdentity, "it is %s, and the policies are for the ServiceAccount hostpath-provisioner of the namespace %s: nothing confines it", words.Quoted(f.Identity.User), f.Configured.Namespace), !f.ownIdentity()
}

func notBound(f Facts) (Line, bool) {
	if f.Policies.Any() {
		return wrong(ReasonNotBound, "its token is bound to no Node object, and the policies refuse it everything"), f.Identity.Node == ""
	}
	return warning(ReasonNotBound, "its token is bound to no Node object: it is good on any machine, and no policy can confine it"), f.Identity.Node == ""
}

func identityGood(f Facts) string {
	return fmt.Sprintf("%s, bound to the Node %s", f.Identity.User, f.Identity.Node)
}

// The Node object.

func nodeMissing(f Facts) (Line, bool) {
	return wrong(ReasonNodeMissing, "the cluster has no Node %s", f.Configured.Node), !f.Node.Found
}

func hostnameMissing(f Facts) (Line, bool) {
	return wrong(ReasonHostnameMissing, "the Node %s has no label kubernetes.io/hostname, which a volume's affinity needs", f.Configured.Node), f.Node.Hostname == ""
}

func nodeGood(f Facts) string {
	return fmt.Sprintf("%s, with the hostname label %s", f.Configured.Node, f.Node.Hostname)
}

// The rights.

func rightsMissing(f Facts) (Line, bool) {
	return wrong(ReasonRightsMissing, "it lacks %d of %d: %s", len(f.Rights.Lacks), f.Rights.Reviewed, strings.Join(f.Rights.Lacks, ", ")), len(f.Rights.Lacks) > 0
}

func tooManyRights(f Facts) (Line, bool) {
	return warning(ReasonTooManyRights, "it has rights that no daemon needs: %s", strings.Join(f.Rights.Excess, ", ")), len(f.Rights.Excess) > 0
}

func podsUnread(f Facts) (Line, bool) {
	return warning(ReasonPodsUnread, "it lacks %s: the claims of a pod get their volumes each for itself, "+
		"and pods that name their node get none", strings.Join(f.Rights.Pods, ", ")), len(f.Rights.Pods) > 0
}

func rightsGood(f Facts) string {
	return fmt.Sprintf("all %d that the daemon needs", f.Rights.Reviewed)
}
