package daemon

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
)

// indexFile has the identity of the claim index that this node found whole, and the selection for
// which it did. It is not made durable: without it all claims are read once more.
const indexFile = "claim-index"

// followClaimIndex has the API server select the claims while it can, and reads all of them while
// it cannot.
func (g *generation) followClaimIndex(ctx context.Context) {
	selection, begun := claimindex.SelectionOf(g.self), sync.Once{}
	whole := ""
	if text, err := state.ReadFile(g.d.StateDir, indexFile); err == nil {
		if identity, of, _ := strings.Cut(string(text), "\n"); of == selection.String() {
			whole = identity
		}
	}
	f := claimindex.Follower{API: g.client, Self: g.self, Whole: whole, Told: g.tellAudits()}
	f.Keep = func(identity string) {
		if err := state.WriteFile(g.d.StateDir, indexFile, []byte(identity+"\n"+selection.String()), 0o600); err != nil {
			g.d.Log.Warn("the identity of the claim index was not kept for the next start: " + err.Error())
		}
	}
	f.Seen = g.controller.LookAtKeptIndex // the two policies come and go together
	f.Use = func(index bool) {
		selector, now := "", "all claims of the cluster are read"
		if index {
			selector, now = selection.String(), "claims are read by the label that the policy "+claimindex.Name+" writes"
		}
		g.claims.Select(selector)
		if index {
			g.controller.LookAtKeptIndex()
		}
		first := false
		begun.Do(func() { close(g.indexed); first = true })
		if index || !first { // that all are read is the usual case, and is not worth a line
			g.d.Log.Info(now)
		}
	}
	f.Run(ctx)
}

// keptFile has what this node knows of the policy that labels kept volumes. It is not made durable:
// without it all volumes are read once more.
const keptFile = "volume-index"

// followKept has the API server select the volumes that are kept for claims while it can.
func (g *generation) followKept(ctx context.Context) {
	var known controllers.KeptIndex
	if text, err := state.ReadFile(g.d.StateDir, keptFile); err != nil || json.Unmarshal(text, &known) != nil {
		known = controllers.KeptIndex{}
	}
	g.controller.FollowKept(ctx, known, func(now controllers.KeptIndex) {
		text, err := json.Marshal(now)
		if err == nil {
			err = state.WriteFile(g.d.StateDir, keptFile, text, 0o600)
		}
		if err != nil {
			g.d.Log.Warn("what is known of the policy " + claimindex.VolumesName + " was not kept for the next start: " + err.Error())
		}
	})
}

// tellAudits returns a function that logs what was found when all claims were read to see whether
// each has its label; once, where the next audit finds the same.
func (g *generation) tellAudits() func(whole bool, labelled int, err error) {
	last := ""
	return func(whole bool, labelled int, err error) {
		now, log := "", g.d.Log.Warn
		switch {
		case err != nil:
			now = "it is not known whether each claim has the label of the policy " + claimindex.Name + ": " + err.Error()
		case labelled > 0:
			now, log = strconv.Itoa(labelled)+" claims had no label of the policy "+claimindex.Name+" and have it now", g.d.Log.Info
		case !whole:
			now = "the cluster has the policy " + claimindex.Name + ", and the API server does not label claims by it, or there is no claim yet"
		}
		if now != "" && now != last {
			log(now)
		}
		last = now
	}
}
