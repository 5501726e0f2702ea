package why

import (
	"context"
	"errors"
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
		if errors.As(err, new(NotFoundError)) {
			part = Page{Object: "claim " + namespace + "/" + claim, State: "it does not exist",
				Waits: "its being made",
				Help:  "make it; a StatefulSet makes those of its own pods"}
			err = nil
		}
		if !a.seen("claims", err) {
			continue
		}
		page.Parts = append(page.Parts, part)
		if part.on != "" {
			on[part.on] = append(on[part.on], claim)
		}
	}
	page.Waits, page.Help = podWaits(p, page.Parts, on)
	if page.Waits == "" {
		page.Waits, page.Help = a.kubelet(ctx, p, page.Parts)
	}
	return page, nil
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
		what = "claims that are on different nodes, and a pod runs on one: "
		return what + strings.Join(all, "; "), "give all claims of a pod classes with " +
			"WaitForFirstConsumer, or let all name one node in " + plan.ProvisionOnNode +
			"; and make again those without data"
	}
	var waiting []string
	holds := ""
	for _, c := range claims {
		if c.Waits != "" {
			waiting = append(waiting, c.Object)
		} else if c.on != "" {
			holds = fmt.Sprintf("; %s has its volume on node %s, so that the pod can run on no other",
				c.Object, words.Name(c.on))
		}
	}
	switch {
	case len(waiting) > 0:
		return strings.Join(waiting, ", ") + holds, ""
	case p.Spec.NodeName == "" && p.Status.Phase == corev1.PodPending:
		return "the scheduler" + unscheduled(p), ""
	}
	return "", ""
}

// kubelet is what a pod waits for of the kubelet of its node.
func (a *asker) kubelet(ctx context.Context, p *corev1.Pod, claims []Page) (what, help string) {
	ends := p.DeletionTimestamp != nil
	if p.Spec.NodeName == "" || !ends && p.Status.Phase != corev1.PodPending {
		return "", ""
	}
	n := a.node(ctx, p.Spec.NodeName)
	for _, c := range claims {
		if c.on != "" && c.on != n.name && !ends {
			return fmt.Sprintf("a volume that is not there: it is on node %s, and %s has its volume "+
					"on node %s", words.Name(n.name), c.Object, words.Name(c.on)),
				"make the pod again without spec.nodeName, so that the scheduler chooses the node"
		}
	}
	what, does := n.with("the kubelet"), ": it starts the pod"
	if ends {
		does = ": it ends the pod"
		if len(p.Finalizers) > 0 {
			does += ", and " + finalizers(p.Finalizers)
		}
	}
	if !n.gone {
		what += does
	}
	help = "kubectl describe pod " + p.Name + " -n " + p.Namespace
	switch {
	case n.gone || !n.ready && !n.unknown:
		help = "kubectl describe node " + words.Name(n.name)
	case !ends && a.inline(p):
		help += fmt.Sprintf("; on node %s: hostpath-provisioner status", words.Name(n.name))
	}
	return what, help
}

// inline reports whether a pod has an inline volume of ours.
func (a *asker) inline(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.CSI != nil && a.Serves(v.CSI.Driver)
	})
}
