package report

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestReferences(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "n", UID: "u", ResourceVersion: "7"}
	for name, c := range map[string]struct{ got, want corev1.ObjectReference }{
		"claim": {Claim(&corev1.PersistentVolumeClaim{ObjectMeta: meta}),
			corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "ns", Name: "n", UID: "u", ResourceVersion: "7"}},
		"volume": {Volume(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}),
			corev1.ObjectReference{Kind: "PersistentVolume", APIVersion: "v1", Name: "n", UID: "u"}},
		"node, whose events kubectl finds by the name as UID": {Node("n"),
			corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: "n", UID: "n"}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", name, c.got, c.want)
		}
	}
}
