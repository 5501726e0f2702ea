package plan

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// otherReasons are those of events and log lines that no counter counts.
var otherReasons = []string{
	ReasonProvisioningSucceeded, ReasonPopulator,
	ReasonStarting, ReasonReady, ReasonStopping, ReasonReloaded, ReasonReloadFailed, ReasonNotInForce,
	ReasonAPIUnavailable, ReasonAPIAvailable, ReasonCredentialRefused, ReasonCredentialEnds, ReasonStartFailed,
	ReasonAPIRefused, ReasonPoolOpened, ReasonPromised,
	ReasonStateUnreadable, ReasonStateUnwritable, ReasonStorageMismatch, ReasonLeaseOverwritten,
	ReasonRestartNeeded, ReasonUnitOutdated, ReasonLaxMount, ReasonInMemory, ReasonNotServed,
	ReasonOtherHost, ReasonOtherNode, ReasonOtherCluster, ReasonScopeChanged, ReasonPathChanged,
	ReasonRecordsUnread, ReasonVolumeNearlyFull, ReasonQuotaEscaped, ReasonFewProjects,
	ReasonNodeForgotten, ReasonVolumeMoved, ReasonNodeAway,
}

// A new reason has to be written into one of the lists, or its series would be born at 1.
func TestEveryReasonIsListed(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reasons.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	listed := slices.Concat(ClaimReasons, VolumeReasons, DirectoryReasons, ExpansionReasons,
		SnapshotReasons, otherReasons)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		found++
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil || !slices.Contains(listed, value) {
			t.Errorf("%s stands in no list of reasons", spec.Names[0].Name)
		}
		return true
	})
	if found == 0 {
		t.Error("reasons.go has no reasons")
	}
}
