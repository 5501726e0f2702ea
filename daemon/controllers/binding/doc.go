// Package binding warns a pod whose claims choose their nodes in different ways: one names its node
// in kubevirt.io/provisionOnNode and another waits for the pod, for example. Their volumes can be
// on different nodes, and then the pod stays Pending. It looks for such pods when a volume was made
// for one of the claims, and from time to time for pods that came later.
//
// The warning and the right to list pods, which only it needs, are kept for these reasons. The
// scheduler's own message for such a pod is "volume node affinity conflict": it names neither the
// claims nor what to do. The mistake is an easy one on clusters that come from kubevirt's
// provisioner, whose documentation warns of it, and there is no other place to tell it: each claim
// by itself is right. And it costs nothing where it cannot happen: pods are listed only where a
// claim names its node or classes of both binding modes exist, Pending ones alone, and by all
// daemons together once a second at most. A daemon without the right says so once and does
// everything else.
//
// It will not change a claim or a pod, and it does not keep a volume from being made: a claim may
// be used by another pod as well.
package binding
