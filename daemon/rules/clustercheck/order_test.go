package clustercheck

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

// breakage makes a rule hold, whatever the facts were.
type breakage struct {
	reason string // "" of a rule whose line has none
	does   func(*Facts)
}

// breakages are one for each rule of a check, in the order of its list.
var breakages = map[string][]breakage{
	CheckAPI: {
		{ReasonKubeconfigUnusable, refused(RefusalKubeconfig)},
		{ReasonServerNotTrusted, refused("NotTrusted")},
		{ReasonServerCertificateTime, refused("NotValidNow")},
		{ReasonServerNameDiffers, refused("OtherName")},
		{ReasonServerWithoutTLS, refused("NoTLS")},
		{ReasonServerWantsTLS, refused("WantsTLS")},
		{ReasonNoCredential, refused("NoCredential")},
		{ReasonProxyUnreachable, refused("ProxyAway")},
		{ReasonCredentialRefused, refused("Unauthorized")},
		{ReasonServerUnreachable, refused("Unreachable")},
		{ReasonServerFails, refused("")},
	},
	CheckToken: {
		{ReasonCredentialExpired, func(f *Facts) { f.Credential.Expires = now.Add(-time.Hour) }},
		{ReasonCredentialEnds, func(f *Facts) { f.Credential.Expires = now.Add(time.Hour) }},
		{ReasonCredentialEndless, func(f *Facts) { f.Credential.Expires, f.Identity.Node = time.Time{}, "" }},
	},
	CheckIdentity: {
		{ReasonCredentialIgnored, func(f *Facts) { f.Identity.Ignored = true }},
		{ReasonBoundToOtherNode, func(f *Facts) { f.Identity.Node = "node-b" }},
		{ReasonOtherIdentity, func(f *Facts) { f.Identity.User = "system:serviceaccount:other:hostpath-provisioner" }},
		{ReasonNotBound, func(f *Facts) { f.Identity.Node = "" }},
	},
	CheckNode: {
		{ReasonNodeMissing, func(f *Facts) { f.Node.Found = false }},
		{ReasonHostnameMissing, func(f *Facts) { f.Node.Hostname = "" }},
	},
	CheckRights: {
		{ReasonRightsMissing, func(f *Facts) { f.Rights.Lacks = []string{"get nodes"} }},
		{ReasonTooManyRights, func(f *Facts) { f.Rights.Excess = []string{"get secrets"} }},
		{ReasonPodsUnread, func(f *Facts) { f.Rights.Pods = []string{"list pods"} }},
	},
	CheckPolicies: {
		{ReasonNoPolicies, none},
		{ReasonPoliciesUnreadable, func(f *Facts) { f.Policies.Readable = false }},
		{ReasonPoliciesReadConfigMap, func(f *Facts) { f.Policies.All[1].Parametrised = true }},
		{ReasonPoliciesMissing, func(f *Facts) { f.Policies.All[0].Found = false }},
		{ReasonPoliciesUnbound, func(f *Facts) { f.Policies.All[1].Bound = false }},
		{ReasonPoliciesNotEnforced, func(f *Facts) { f.Policies.Enforced = false }},
		{ReasonPoliciesDiffer, func(f *Facts) { f.Policies.All[0].Same = false }},
	},
	CheckParameters: {
		{"", func(f *Facts) { f.Parameters.Readable = false }},
		{ReasonProvisionerNotListed, func(f *Facts) { f.Parameters.Lists["provisioners"] = nil }},
		{ReasonPoolNotListed, func(f *Facts) { f.Parameters.Lists["paths"] = nil }},
		{ReasonHostnameNotListed, func(f *Facts) { f.Parameters.Hostnames["node-a"] = "x" }},
		{ReasonClassNotListed, func(f *Facts) { f.Parameters.Classes = []string{"x"} }},
		{ReasonAudienceNotListed, func(f *Facts) { f.Credential.Audiences, f.Parameters.Lists["audiences"] = []string{"x"}, []string{"y"} }},
	},
	CheckClaimIndex: {
		{"", func(f *Facts) { f.Index = Index{Unserved: true} }},
		{"", func(f *Facts) { f.Index = Index{} }},
		{ReasonIndexUnbound, func(f *Facts) { f.Index.Binding = false }},
		{ReasonIndexDiffers, func(f *Facts) { f.Index.Same = false }},
		{ReasonIndexNotEnforced, func(f *Facts) { f.Index.Labels = false }},
		{ReasonVolumesUnlabelled, func(f *Facts) { f.Index.Volumes = false }},
	},
}

// Of any two rules of a list that hold, the first is reported: an administrator who repairs what is
// told gets on.
func TestTheFirstRuleIsReported(t *testing.T) {
	for _, c := range checks {
		all := breakages[c.name]
		if len(all) != len(c.rules) {
			t.Errorf("%s: %d breakages of %d rules", c.name, len(all), len(c.rules))
			continue
		}
		for i, first := range all {
			for _, also := range all[i:] {
				f := good()
				also.does(&f)
				first.does(&f)
				if got := c.judge(f); got.Reason != first.reason || got.Status == Unknown {
					t.Errorf("%s: with %q and %q: %+v", c.name, first.reason, also.reason, got)
				}
			}
		}
	}
}

// What is wrong in one check alters the line of no other, but where the other's sentence is of the
// same fact.
func TestChecksAreApart(t *testing.T) {
	same := map[string][]string{
		CheckToken:    {CheckIdentity},               // a token that is bound to no node
		CheckIdentity: {CheckPolicies},               // another identity than the policies'
		CheckNode:     {CheckParameters},             // the label that the policies have to have
		CheckPolicies: {CheckToken, CheckParameters}, // the rights and the lists come with them
	}
	untouched := Judge(good())
	for name, all := range breakages {
		for _, b := range all {
			f := good()
			b.does(&f)
			for i, line := range Judge(f) {
				apart := name != CheckAPI && line.Check != name && !slices.Contains(same[name], line.Check)
				if apart && !reflect.DeepEqual(line, untouched[i]) {
					t.Errorf("%s %q: %+v, was %+v", name, b.reason, line, untouched[i])
				}
			}
		}
	}
}

// The facts are of the caller, who makes the hints from them: judging alters none, and judging
// again finds the same.
func TestJudgeAltersNoFacts(t *testing.T) {
	for name, all := range breakages {
		for _, b := range all {
			f, before := good(), good()
			b.does(&f)
			b.does(&before)
			first := Judge(f)
			if !reflect.DeepEqual(f, before) {
				t.Errorf("%s %q: %+v\nwere\n%+v", name, b.reason, f, before)
			}
			if again := Judge(f); !reflect.DeepEqual(first, again) {
				t.Errorf("%s %q: %v, then %v", name, b.reason, first, again)
			}
		}
	}
}
