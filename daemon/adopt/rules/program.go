package rules

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
)

// Runs returns what shows that a pod runs the program of a provisioner, "" if nothing does: its
// image, or the provisioner's name in its arguments or environment. Several systems' images have
// the same name, and then it speaks for each of them: a word too many does less harm than one too
// few.
func Runs(pod *corev1.Pod, provisioner string) string {
	system, _ := plan.SystemOf(provisioner)
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if slices.Contains(system.Program, imageName(c.Image)) || speaksOf(c, provisioner) {
			return fmt.Sprintf("pod %s/%s on node %q with image %s", pod.Namespace, pod.Name, pod.Spec.NodeName, c.Image)
		}
	}
	return ""
}

// imageName is an image's name without registry, tag and digest.
func imageName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name, _, _ := strings.Cut(path.Base(image), ":")
	return name
}

func speaksOf(c corev1.Container, provisioner string) bool {
	for _, arg := range slices.Concat(c.Command, c.Args) {
		if _, value, has := strings.Cut(arg, "="); arg == provisioner || has && value == provisioner {
			return true
		}
	}
	return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Value == provisioner })
}

// Leads returns what shows that a leader's lock is held, "" if nothing does: it was renewed within
// its duration and a minute, for clocks that differ.
func Leads(l *coordinationv1.Lease, now time.Time) string {
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || l.Spec.RenewTime == nil {
		return ""
	}
	lasts := time.Minute
	if l.Spec.LeaseDurationSeconds != nil {
		lasts += time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	}
	if now.After(l.Spec.RenewTime.Add(lasts)) {
		return ""
	}
	return fmt.Sprintf("%s holds the leader's lock %s/%s", *l.Spec.HolderIdentity, l.Namespace, l.Name)
}

// LeaderLock is the name of the object with which the usual provisioner library elects a leader
// (sig-storage-lib-external-provisioner, controller.NewProvisionController).
func LeaderLock(provisioner string) string { return strings.ReplaceAll(provisioner, "/", "-") }
