package csi

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Of calls for one target that come at once those for one volume are served: nothing is mounted
// over what a pod was promised, and nothing stays.
func TestOneTargetAtOnce(t *testing.T) {
	h := newHost(t)
	h.create("fast", "pvc-2")
	for range 30 {
		var all sync.WaitGroup
		ended := make(chan codes.Code, 4)
		for _, pv := range []string{"pvc-1", "pvc-2", "pvc-1", "pvc-2"} {
			r := h.request("fast", pv)
			all.Go(func() {
				_, err := h.node.NodePublishVolume(t.Context(), r)
				ended <- status.Code(err)
			})
		}
		all.Wait()
		close(ended)
		got := map[codes.Code]int{}
		for code := range ended {
			got[code]++
		}
		if points := h.mounted(); got[codes.OK] != 2 || got[codes.AlreadyExists] != 2 || len(points) != 1 {
			t.Fatalf("calls for two volumes ended with %v, and there is mounted: %q", got, points)
		}
		h.want(h.unpublish(), codes.OK, "")
		if points := h.mounted(); len(points) != 0 {
			t.Fatalf("left: %q", points)
		}
	}
}

// A directory that is not empty, a link or a file in the place of a target is not removed, nor what
// it leads to.
func TestUnpublishOfWhatIsNoMount(t *testing.T) {
	h := newHost(t)
	outside, at := filepath.Join(h.dir, "outside"), h.target("u-1")
	h.must(mkdirs(outside), os.WriteFile(outside+"/data", []byte("data"), 0o600))
	for name, put := range map[string]func() error{
		"a directory with data": func() error { return os.CopyFS(at, os.DirFS(outside)) },
		"a link to it":          func() error { return os.Symlink(outside, at) },
		"a file":                func() error { return os.WriteFile(at, []byte("data"), 0o600) },
	} {
		h.must(put())
		code, text := codes.Internal, "removing "+at
		if name == "a directory with data" {
			code, text = codes.FailedPrecondition, at+": the directory itself has files"
			h.want(h.publish(), code, text)
		}
		h.want(h.unpublish(), code, text)
		if _, err := os.Lstat(at); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, dir := range []string{outside, at} {
			if text, err := os.ReadFile(dir + "/data"); name != "a file" && (err != nil || string(text) != "data") {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
		h.must(os.RemoveAll(at))
	}
}

// Names of any length are refused, and the service goes on.
func TestLongNames(t *testing.T) {
	h := newHost(t)
	for n, code := range map[int]codes.Code{256: codes.Internal, 4096: codes.Internal, 5 << 20: codes.ResourceExhausted} {
		long := strings.Repeat("n", n)
		for _, at := range []string{h.target(long), h.target("u-1") + long} {
			h.want(h.publish(func(r *spec.NodePublishVolumeRequest) { r.TargetPath = at }), code, "")
			_, err := h.node.NodeUnpublishVolume(t.Context(), &spec.NodeUnpublishVolumeRequest{VolumeId: long, TargetPath: at})
			h.want(err, code, "")
		}
	}
	h.want(h.publish(), codes.OK, "")
	h.want(h.unpublish(), codes.OK, "")
}
