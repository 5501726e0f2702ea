package controllers

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// What the API server refuses of a content is told on its VolumeSnapshot, and no event is about the
// content, which the policies would refuse.
func TestRefusedContent(t *testing.T) {
	c, w, a, heard := snapshotting(t)
	whole(record.InPool)(c, w, a)
	contents := schema.GroupResource{Resource: "volumesnapshotcontents"}
	a.fails["taken by node-a"] = apierrors.NewForbidden(contents, "snapcontent-u", errors.New("no"))
	_, err := c.content(t.Context(), item{name: "snapcontent-u", uid: "content"})
	said := strings.Join(heard.of(a.content.Spec.SnapshotRef.UID), ", ")
	if err == nil || !strings.HasPrefix(said, plan.ReasonAPIRefused) {
		t.Errorf("%v, told %q", err, said)
	}
	if about := heard.of("content"); len(about) > 0 {
		t.Errorf("told of the content: %q", about)
	}
	if count, first := c.Refused(1); count != 1 || first[0].What != "VolumeSnapshotContent snapcontent-u" {
		t.Errorf("the status has %d: %v", count, first)
	}
}
