package snapshotapi

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// samples are objects as external-snapshotter v8.6.0 has the API server keep them. Fields that the
// daemon does not read are among them.
var samples = map[string]string{
	"VolumeSnapshot": `{
  "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
  "metadata": {"name": "before-upgrade", "namespace": "shop", "uid": "6f0d", "finalizers": ["snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"]},
  "spec": {"source": {"persistentVolumeClaimName": "db"}, "volumeSnapshotClassName": "live"},
  "status": {"boundVolumeSnapshotContentName": "snapcontent-6f0d", "creationTime": "2026-03-01T10:00:00Z", "readyToUse": true, "restoreSize": "1Gi"}
}`,
	"VolumeSnapshotContent": `{
  "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
  "metadata": {"name": "snapcontent-6f0d", "uid": "77aa", "resourceVersion": "12", "annotations": {"hostpath-provisioner/node": "node-a"},
    "finalizers": ["snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"]},
  "spec": {"deletionPolicy": "Delete", "driver": "hostpath-provisioner", "source": {"volumeHandle": "pvc-1"}, "sourceVolumeMode": "Filesystem",
    "volumeSnapshotClassName": "live", "volumeSnapshotRef": {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
      "name": "before-upgrade", "namespace": "shop", "resourceVersion": "11", "uid": "6f0d"}},
  "status": {"snapshotHandle": "snapshot-6f0d", "creationTime": 1772359200000000000, "restoreSize": 1073741824, "readyToUse": false,
    "error": {"time": "2026-03-01T10:00:00Z", "message": "no space"}}
}`,
	"VolumeSnapshotClass": `{
  "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": "live", "labels": {"a": "b"}},
  "driver": "hostpath-provisioner", "deletionPolicy": "Delete", "parameters": {"consistency": "live"}
}`,
	"VolumeSnapshotContentList": `{
  "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContentList", "metadata": {"resourceVersion": "40", "continue": "next", "remainingItemCount": 7},
  "items": [
    {"metadata": {"name": "a"}, "spec": {"driver": "d", "deletionPolicy": "Retain", "source": {"snapshotHandle": "s"}, "volumeSnapshotRef": {}}, "status": {"readyToUse": true}},
    {"metadata": {"name": "b"}, "spec": {"driver": "d", "deletionPolicy": "Delete", "source": {"volumeHandle": "v"}, "volumeSnapshotRef": {"uid": "u"}}}
  ]
}`,
}

// decode reads an object by its kind, as the daemon's client does.
func decode(text string) (runtime.Object, error) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		return nil, err
	}
	object, _, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode([]byte(text), nil, nil)
	return object, err
}

// sample is the decoded sample of a kind.
func sample[T runtime.Object](t *testing.T, kind string) T {
	t.Helper()
	object, err := decode(samples[kind])
	if err != nil {
		t.Fatal(err)
	}
	return object.(T)
}

// Each field that the daemon uses is read, and written again as it was, under the API's own name.
func TestFields(t *testing.T) {
	unused := map[string][]string{
		"VolumeSnapshot": {".spec.volumeSnapshotClassName", ".status.creationTime", ".status.restoreSize"},
		"VolumeSnapshotContent": {
			".spec.sourceVolumeMode", ".spec.volumeSnapshotRef.apiVersion", ".spec.volumeSnapshotRef.kind", ".spec.volumeSnapshotRef.resourceVersion",
		},
		"VolumeSnapshotClass": {".deletionPolicy"},
	}
	for kind, text := range samples {
		object := sample[runtime.Object](t, kind)
		if got := object.GetObjectKind().GroupVersionKind(); got != GroupVersion.WithKind(kind) {
			t.Errorf("%s is a %s", kind, got)
		}
		want := fields(t, []byte(text))
		for _, field := range unused[kind] {
			delete(want, field)
		}
		if got := fields(t, encode(t, object)); !maps.Equal(got, want) {
			t.Errorf("%s: got\n%v\nwant\n%v", kind, got, want)
		}
	}
}

// fields are the leaves of a JSON text, by their paths.
func fields(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var root any
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	leaves := map[string]any{}
	var walk func(at string, value any)
	walk = func(at string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, one := range value {
				walk(at+"."+key, one)
			}
		case []any:
			for i, one := range value {
				walk(at+"["+string(rune('0'+i))+"]", one)
			}
		default:
			leaves[at] = value
		}
	}
	walk("", root)
	return leaves
}

func encode(t *testing.T, object any) []byte {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// An object of which a field has another type is an error, and not an object without the field.
func TestWrongFields(t *testing.T) {
	for wrong, right := range map[string]string{
		`"driver": 7`: `"driver": "hostpath-provisioner"`, `"parameters": ["live"]`: `"parameters": {"consistency": "live"}`,
		`"parameters": {"consistency": true}`: `"parameters": {"consistency": "live"}`, `"readyToUse": "yes"`: `"readyToUse": false`,
		`"restoreSize": "1Gi"`: `"restoreSize": 1073741824`, `"creationTime": "2026-03-01T10:00:00Z"`: `"creationTime": 1772359200000000000`,
		`"source": "pvc-1"`: `"source": {"volumeHandle": "pvc-1"}`, `"snapshotHandle": 6`: `"snapshotHandle": "snapshot-6f0d"`,
		`"message": {}`: `"message": "no space"`, `"time": "yesterday"`: `"time": "2026-03-01T10:00:00Z"`,
		`"boundVolumeSnapshotContentName": []`: `"boundVolumeSnapshotContentName": "snapcontent-6f0d"`, `"items": {}`: `"items": []`,
	} {
		tried := 0
		for kind, text := range samples {
			if right == `"items": []` && kind == "VolumeSnapshotContentList" {
				text = text[:strings.Index(text, `"items"`)] + right + "}"
			}
			if !strings.Contains(text, right) {
				continue
			}
			tried++
			if object, err := decode(strings.Replace(text, right, wrong, 1)); err == nil {
				t.Errorf("%s with %s is %+v", kind, wrong, object)
			}
		}
		if tried == 0 {
			t.Errorf("no sample has %s", right)
		}
	}
}

// What is of another version or another group is no object of this one.
func TestKinds(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if !scheme.IsVersionRegistered(schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}) {
		t.Error("the version is not known")
	}
	for _, kind := range slices.Sorted(maps.Keys(samples)) {
		for _, version := range []string{"snapshot.storage.k8s.io/v1beta1", "storage.k8s.io/v1", "v1"} {
			if object, err := decode(strings.Replace(samples[kind], "snapshot.storage.k8s.io/v1", version, 1)); err == nil {
				t.Errorf("%s of %s is %T", kind, version, object)
			}
		}
	}
}

// What is written of a status is what is set in it, byte for byte: a field that is left out stays
// as it is in the cluster.
func TestStatusBytes(t *testing.T) {
	handle, created, size, yes, no := "snapshot-6f0d", int64(1772359200000000001), int64(0), true, false
	at := time.Date(2026, 3, 1, 11, 0, 0, 5, time.FixedZone("", 3600))
	for want, status := range map[string]ContentStatus{
		`{}`: {},
		`{"snapshotHandle":"snapshot-6f0d","creationTime":1772359200000000001,"restoreSize":0,"readyToUse":true}`: {SnapshotHandle: &handle, CreationTime: &created, RestoreSize: &size, ReadyToUse: &yes},
		`{"readyToUse":false,"error":{"time":"2026-03-01T10:00:00Z","message":"no \"space\""}}`:                   {ReadyToUse: &no, Error: NewError(`no "space"`, at)},
	} {
		if got := string(encode(t, status)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
