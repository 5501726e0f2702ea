package plan

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func podClaim(name, node string, mode storagev1.VolumeBindingMode) PodClaim {
	c := PodClaim{&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}, &storagev1.StorageClass{VolumeBindingMode: &mode}}
	if node != "" {
		c.Claim.Annotations = map[string]string{ProvisionOnNode: node}
	}
	return c
}

func TestMixedBinding(t *testing.T) {
	const now, later = storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer
	const head, tail = "the claims of this pod choose their nodes differently, so that their volumes can be on different nodes: ",
		"; let all of them name the same node in kubevirt.io/provisionOnNode, or none"
	for name, c := range map[string]struct {
		claims []PodClaim
		want   string
	}{
		"none":                       {nil, ""},
		"one":                        {[]PodClaim{podClaim("a", "", now)}, ""},
		"both wait":                  {[]PodClaim{podClaim("a", "", later), podClaim("b", "", later)}, ""},
		"both at once":               {[]PodClaim{podClaim("a", "", now), podClaim("b", "", now)}, ""},
		"both name the node":         {[]PodClaim{podClaim("a", us, now), podClaim("b", us, later)}, ""},
		"they name different nodes":  {[]PodClaim{podClaim("a", us, later), podClaim("b", them, later)}, "a names node node-a, b names node node-b"},
		"one names a node":           {[]PodClaim{podClaim("a", us, later), podClaim("b", "", later)}, "a names node node-a, b waits for the pod"},
		"one is provided at once":    {[]PodClaim{podClaim("a", "", now), podClaim("b", "", later)}, "a is provided at once on any node, b waits for the pod"},
		"one of three is different":  {[]PodClaim{podClaim("a", "", later), podClaim("b", "", later), podClaim("c", us, now)}, "a waits for the pod, b waits for the pod, c names node node-a"},
		"class without binding mode": {[]PodClaim{{podClaim("a", "", now).Claim, &storagev1.StorageClass{}}, podClaim("b", "", later)}, "a is provided at once on any node, b waits for the pod"},
	} {
		if c.want != "" {
			c.want = head + c.want + tail
		}
		if got := MixedBinding(c.claims); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

func TestMayMix(t *testing.T) {
	const now, later = storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer
	plain, naming := podClaim("a", "", later), podClaim("b", us, later)
	if classes := []*storagev1.StorageClass{plain.Class, naming.Class}; MayMix(plain.Claim, classes) || !MayMix(naming.Claim, classes) {
		t.Error("with one binding mode, a claim that names a node may mix, and no other")
	}
	if !MayMix(plain.Claim, []*storagev1.StorageClass{plain.Class, podClaim("", "", now).Class}) {
		t.Error("with both binding modes, every claim may mix")
	}
}

func TestPodClaimNames(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-web-0"}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
	}}}
	pod.Spec.Volumes = append(pod.Spec.Volumes, pod.Spec.Volumes[1]) // once more
	for most, want := range map[int][]string{0: nil, 1: {"data-web-0"}, 2: {"data-web-0", "web-0-scratch"}, 3: {"data-web-0", "web-0-scratch"}} {
		if got := PodClaimNames(pod, most); !slices.Equal(got, want) {
			t.Errorf("of %d: %q, want %q", most, got, want)
		}
	}
}
