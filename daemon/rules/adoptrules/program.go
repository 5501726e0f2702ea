package adoptrules

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
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

// Lasts is for how long a leader's lock is held without being renewed, 0 if nobody holds it: 15
// seconds where it does not say that (client-go, tools/leaderelection).
func Lasts(l *coordinationv1.Lease) time.Duration {
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || l.Spec.RenewTime == nil {
		return 0
	}
	if l.Spec.LeaseDurationSeconds == nil || *l.Spec.LeaseDurationSeconds <= 0 {
		return 15 * time.Second
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}

// Leads returns what shows that a leader's lock is held, "" if nothing does: it is another one than
// it was before, which is nil if it was not seen before, and somebody holds it. What the clock was
// when it was renewed does not matter.
func Leads(before, now *coordinationv1.Lease) string {
	if before == nil || Lasts(now) == 0 || before.Spec.RenewTime.Equal(now.Spec.RenewTime) &&
		*before.Spec.HolderIdentity == *now.Spec.HolderIdentity {
		return ""
	}
	holder := *now.Spec.HolderIdentity
	return fmt.Sprintf("%s holds the leader's lock %s/%s", holder, now.Namespace, now.Name)
}

// LeaderLock is the name of the object with which the usual provisioner library elects a leader
// (sig-storage-lib-external-provisioner, controller.NewProvisionController).
func LeaderLock(provisioner string) string { return strings.ReplaceAll(provisioner, "/", "-") }
