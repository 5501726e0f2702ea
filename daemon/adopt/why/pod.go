package why

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// pod is the page of a pod, with those of its claims.
func (a *asker) pod(ctx context.Context, namespace, name string) (Page, error) {
	p, err := a.GetPod(ctx, namespace, name)
	switch {
	case err != nil:
		return Page{}, err
	case p == nil:
		return Page{}, NotFoundError{"pod " + namespace + "/" + name}
	}
	page := Page{Object: "pod " + namespace + "/" + name, State: string(p.Status.Phase),
		Events: a.events(ctx, p)}
	if p.Spec.NodeName != "" {
		page.State += ", on node " + words.Name(p.Spec.NodeName)
	}
	on := map[string][]string{} // claims by the nodes of their volumes
	for _, claim := range plan.PodClaimNames(p, len(p.Spec.Volumes)) {
		part, err := a.claim(ctx, namespace, claim, []*corev1.Pod{p})
		if _, gone := err.(NotFoundError); gone {
			part = Page{Object: "claim " + namespace + "/" + claim, State: "it does not exist",
				Waits: "its being made", Help: "make it; a StatefulSet makes those of its own pods"}
			err = nil
		}
		if !a.seen("claims", err) {
			continue
		}
		page.Parts = append(page.Parts, part)
		if node := a.nodeOf(ctx, namespace, claim); node != "" {
			on[node] = append(on[node], claim)
		}
	}
	page.Waits, page.Help = podWaits(p, page.Parts, on)
	return page, nil
}

// nodeOf is the node that a claim's volume is on, or that was chosen for it.
func (a *asker) nodeOf(ctx context.Context, namespace, name string) string {
	c, err := a.GetClaim(ctx, namespace, name)
	if err != nil || c == nil {
		return ""
	}
	if c.Spec.VolumeName == "" {
		return chosen(c)
	}
	v, err := a.GetVolume(ctx, c.Spec.VolumeName)
	if err != nil || v == nil {
		return ""
	}
	return v.Labels[plan.NodeLabel]
}

// podWaits is what a pod waits for, of its claims.
func podWaits(p *corev1.Pod, claims []Page, on map[string][]string) (what, help string) {
	if len(on) > 1 {
		var all []string
		for node, names := range on {
			slices.Sort(names)
			names := strings.Join(names, ", ")
			all = append(all, fmt.Sprintf("%s on node %s", names, words.Name(node)))
		}
		slices.Sort(all)
		what = "claims that are on different nodes, and a pod runs on one: " + strings.Join(all, "; ")
		return what, "give all claims of a pod classes with WaitForFirstConsumer, " +
			"and make again those without data"
	}
	var waiting []string
	for _, c := range claims {
		if c.Waits != "" {
			waiting = append(waiting, c.Object)
		}
	}
	switch {
	case len(waiting) > 0:
		return strings.Join(waiting, ", "), ""
	case p.Spec.NodeName == "" && p.Status.Phase == corev1.PodPending:
		return "the scheduler" + unscheduled(p), ""
	}
	return "", ""
}
