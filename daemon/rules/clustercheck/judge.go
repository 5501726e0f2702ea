package clustercheck

import "slices"

// Status of a Line.
const (
	OK      = "ok"
	Warning = "warning" // the daemon works, and something is to be done
	Wrong   = "wrong"   // the daemon does not work, or is not protected as the cluster means it to be
	Unknown = "unknown" // a request failed
)

// Line is what a check found.
type Line struct {
	Check   string `json:"check"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"` // in CamelCase, "" with OK and Unknown
	Message string `json:"message"`
}

// Names of the checks, in the order of the lines.
const (
	CheckAPI        = "API"
	CheckToken      = "token"
	CheckIdentity   = "identity"
	CheckNode       = "node"
	CheckRights     = "rights"
	CheckPolicies   = "policies"
	CheckParameters = "parameters"
	CheckClaimIndex = "claim index"
)

// rule returns a line and true where it holds. Its Check is filled in.
type rule func(Facts) (Line, bool)

// check is a list of rules, and what is reported where none holds.
type check struct {
	name  string
	local bool // it needs no API server
	rules []rule
	good  func(Facts) string
}

var checks = []check{
	{CheckAPI, true, slices.Concat([]rule{kubeconfigUnusable}, refusals, []rule{serverFails}), apiGood},
	{CheckToken, true, []rule{credentialExpired, credentialEnds, credentialEndless}, tokenGood},
	{CheckIdentity, false, []rule{credentialIgnored, boundToOtherNode, otherIdentity, notBound}, identityGood},
	{CheckNode, false, []rule{nodeMissing, hostnameMissing}, nodeGood},
	{CheckRights, false, []rule{rightsMissing, tooManyRights, podsUnread}, rightsGood},
	{CheckPolicies, false, []rule{noPolicies, policiesUnreadable, policiesReadConfigMap, policiesMissing, policiesUnbound, policiesNotEnforced, policiesDiffer}, policiesGood},
	{CheckParameters, false, []rule{parametersNotRead, provisionerNotListed, poolNotListed, hostnameNotListed, classNotListed, audienceNotListed}, parametersGood},
	{CheckClaimIndex, false, []rule{
		indexUnknown, indexAbsent, indexUnbound, indexDiffers, indexNotEnforced, volumesUnlabelled,
	}, indexGood},
}

// Judge returns a line for each check.
func Judge(f Facts) []Line {
	lines := make([]Line, 0, len(checks))
	for _, c := range checks {
		line := c.judge(f)
		line.Check = c.name
		lines = append(lines, line)
	}
	return lines
}

func (c check) judge(f Facts) Line {
	switch {
	case c.name != CheckAPI && f.API.Refusal == RefusalKubeconfig:
		return Line{Status: Unknown, Message: "it takes a kubeconfig to know"}
	case !c.local && f.API.Err != nil:
		return Line{Status: Unknown, Message: "the API server has to respond first"}
	}
	if err := f.Failed[c.name]; err != nil {
		return Line{Status: Unknown, Message: errorText(err)}
	}
	for _, r := range c.rules {
		if line, holds := r(f); holds {
			return line
		}
	}
	return Line{Status: OK, Message: c.good(f)}
}

// Sound reports whether nothing is wrong or unknown.
func Sound(lines []Line) bool {
	return !slices.ContainsFunc(lines, func(l Line) bool {
		return l.Status == Wrong || l.Status == Unknown
	})
}
