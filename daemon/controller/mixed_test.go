package controller

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podsOf makes pods one after the other, as pages bring them, and looks how much of them is held after the last.
type podsOf struct {
	api
	n, claims int
	held      uint64
}

func (p *podsOf) EachPod(_ context.Context, _, _ string, visit func(*corev1.Pod)) error {
	before := heap()
	for i := range p.n {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i), Annotations: map[string]string{"x": strings.Repeat("x", 1<<20)}}}
		for claim := range p.claims {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprint("claim-", claim)}}})
		}
		visit(pod)
	}
	p.held = max(heap(), before) - before
	return nil
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A tenant that has one claim provisioned has many large pods that use it, each with many claims. Little is held of
// them, and little is asked.
func TestManyLargePods(t *testing.T) {
	a := &podsOf{n: 2 * mixedPods, claims: 10 * mixedClaims}
	c, _ := stand(&a.api, &shelf{})
	c.API = a
	c.mixing.add("default", "claim-0")
	if _, err := c.lookForMix(t.Context(), item{namespace: "default"}); err != nil {
		t.Fatal(err)
	}
	if a.held > 4<<20 {
		t.Errorf("%d KiB are held of %d pods", a.held>>10, a.n)
	}
	if asked := len(a.asked); asked == 0 || asked > mixedPods*mixedClaims {
		t.Errorf("%d claims were asked for", asked)
	}
}
