package snapshotapi

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// The handle in the status is the one that there is; before there is one, that of the content's
// source or of its VolumeSnapshot.
func TestHandle(t *testing.T) {
	status, given := "of the status", "given"
	for want, c := range map[string]Content{
		"":                {},
		"snapshot-u":      {Spec: ContentSpec{SnapshotRef: SnapshotRef{UID: "u"}}, Status: &ContentStatus{}},
		"given":           {Spec: ContentSpec{SnapshotRef: SnapshotRef{UID: "u"}, Source: ContentSource{SnapshotHandle: &given}}},
		"of the status":   {Spec: ContentSpec{Source: ContentSource{SnapshotHandle: &given}}, Status: &ContentStatus{SnapshotHandle: &status}},
		"snapshot-volume": {Spec: ContentSpec{SnapshotRef: SnapshotRef{UID: "volume"}, Source: ContentSource{VolumeHandle: &given}}},
	} {
		if got := c.Handle(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A content is ready if its status says so, and not if it says nothing.
func TestReady(t *testing.T) {
	yes, no, handle := true, false, "h"
	for name, c := range map[string]struct {
		status *ContentStatus
		want   bool
	}{
		"no status": {nil, false}, "nothing in it": {&ContentStatus{}, false}, "no": {&ContentStatus{ReadyToUse: &no}, false}, "without a handle": {&ContentStatus{ReadyToUse: &yes}, false},
		"yes": {&ContentStatus{ReadyToUse: &yes, SnapshotHandle: &handle}, true},
	} {
		if got := (&Content{Status: c.status}).Ready(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A copy has what the object has, and shares no pointer, map or slice with it: those of the cache
// are changed by no worker.
func TestCopies(t *testing.T) {
	for kind := range samples {
		object := sample[runtime.Object](t, kind)
		copied := object.DeepCopyObject()
		if !reflect.DeepEqual(object, copied) {
			t.Errorf("the copy of %s is\n%+v, want\n%+v", kind, copied, object)
		}
		if n := shared(t, kind, reflect.ValueOf(object), reflect.ValueOf(copied)); n < 2 {
			t.Errorf("%s: %d values could be shared", kind, n)
		}
	}
	for _, empty := range []runtime.Object{&Snapshot{}, &Content{}, &Class{}, &ContentList{}} {
		if copied := empty.DeepCopyObject(); !reflect.DeepEqual(copied, empty) {
			t.Errorf("the copy of an empty %T is %+v", empty, copied)
		}
	}
}

// shared reports what two values have in common in memory, and returns how many values were looked
// at that could be.
func shared(t *testing.T, at string, a, b reflect.Value) (looked int) {
	t.Helper()
	switch a.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice:
		if a.IsNil() || b.IsNil() {
			return 0
		}
		looked++
		if a.Pointer() == b.Pointer() {
			t.Errorf("the copy shares %s", at)
		}
	}
	switch a.Kind() {
	case reflect.Pointer:
		if a.Type().Elem().PkgPath() != "time" {
			looked += shared(t, at, a.Elem(), b.Elem())
		}
	case reflect.Struct:
		for i := range a.NumField() {
			if a.Type().Field(i).IsExported() && a.Type().String() != "v1.Time" {
				looked += shared(t, at+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
			}
		}
	case reflect.Slice:
		for i := range min(a.Len(), b.Len()) {
			looked += shared(t, at, a.Index(i), b.Index(i))
		}
	}
	return looked
}
