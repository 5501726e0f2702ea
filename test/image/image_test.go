package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// The archive is read as a runtime does: from the index down, each blob by its digest and size.
func TestImage(t *testing.T) {
	program := filepath.Join(t.TempDir(), "busybox")
	if err := os.WriteFile(program, []byte("a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	image, err := Busybox("localhost/image:1", program)
	if err != nil {
		t.Fatal(err)
	}
	image.Files = append(image.Files, File{Name: "tmp/", Mode: 0o1777})
	image.Cmd = []string{"argument"}
	var b bytes.Buffer
	if err := image.Write(&b); err != nil {
		t.Fatal(err)
	}
	archive := untar(t, b.Bytes())
	blob := func(d descriptor) []byte {
		data, found := archive["blobs/sha256/"+d.Digest[len("sha256:"):]]
		if sum := fmt.Sprintf("sha256:%x", sha256.Sum256(data.Data)); !found || sum != d.Digest || len(data.Data) != d.Size {
			t.Fatalf("%s of %d bytes: found %t, %s, %d bytes", d.Digest, d.Size, found, sum, len(data.Data))
		}
		return data.Data
	}
	var index struct{ Manifests []descriptor }
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	var config struct {
		Config struct{ Entrypoint, Cmd []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	unmarshal(t, archive["index.json"].Data, &index)
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != "localhost/image:1" {
		t.Errorf("the image is named %q", got)
	}
	unmarshal(t, blob(index.Manifests[0]), &manifest)
	unmarshal(t, blob(manifest.Config), &config)
	if len(manifest.Layers) != 1 || config.RootFS.DiffIDs[0] != manifest.Layers[0].Digest {
		t.Errorf("layers %v, diff_ids %v", manifest.Layers, config.RootFS.DiffIDs)
	}
	if got := config.Config; got.Entrypoint[0] != "/bin/sh" || len(got.Cmd) != 1 || got.Cmd[0] != "argument" {
		t.Errorf("it runs %v", got)
	}
	layer := untar(t, blob(manifest.Layers[0]))
	if f := layer["bin/busybox"]; string(f.Data) != "a program" || f.Mode != 0o755 {
		t.Errorf("bin/busybox: %q, mode %o", f.Data, f.Mode)
	}
	if f, found := layer["tmp/"]; !found || f.Mode != 0o1777 {
		t.Errorf("tmp/: found %t, mode %o", found, f.Mode)
	}
	if layer["bin/sh"].Link != "busybox" || len(layer) != 2+len(applets) {
		t.Errorf("the layer has %v", layer)
	}
}

func untar(t *testing.T, archive []byte) map[string]File {
	t.Helper()
	files := map[string]File{}
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = File{Name: h.Name, Data: data, Link: h.Linkname, Mode: h.Mode}
	}
}

func unmarshal(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
}
