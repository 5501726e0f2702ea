package nodes

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
)

// imageName is what pods name as their image. No registry has it: "localhost" is nobody's, and pods
// say imagePullPolicy Never.
const imageName = "localhost/hostpath-nodes:1"

// applets are the names that the image's busybox has.
var applets = []string{"sh", "cat", "grep", "id", "ls", "sleep", "stat", "test"}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// writeImage writes an archive of an OCI image layout (image-layout.md of the OCI image
// specification) with one image: a static busybox and nothing else. Without a command it sleeps, which
// makes it fit to hold a pod's sandbox too.
func writeImage(w io.Writer, busybox string) error {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	layer, err := tarball(layerFiles(program))
	if err != nil {
		return err
	}
	blobs := []file{{name: "oci-layout", data: []byte(`{"imageLayoutVersion":"1.0.0"}`)}}
	add := func(mediaType string, data []byte) descriptor {
		sum := sha256.Sum256(data)
		digest := hex.EncodeToString(sum[:])
		blobs = append(blobs, file{name: "blobs/sha256/" + digest, data: data})
		return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(data)}
	}
	rootfs := add("application/vnd.oci.image.layer.v1.tar", layer)
	config := add("application/vnd.oci.image.config.v1+json", marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/bin/sleep", "infinity"}, "Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{rootfs.Digest}},
	}))
	manifest := add("application/vnd.oci.image.manifest.v1+json", marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": config, "layers": []descriptor{rootfs},
	}))
	manifest.Annotations = map[string]string{"io.containerd.image.name": imageName}
	blobs = append(blobs, file{name: "index.json", data: marshal(map[string]any{
		"schemaVersion": 2, "manifests": []descriptor{manifest},
	})})
	archive, err := tarball(blobs)
	if err != nil {
		return err
	}
	_, err = w.Write(archive)
	return err
}

func layerFiles(program []byte) []file {
	files := []file{{name: "bin/busybox", data: program, mode: 0o755}}
	for _, applet := range applets {
		files = append(files, file{name: "bin/" + applet, link: "busybox"})
	}
	return files
}

// file is an entry of an archive. Its directories need no entries: who unpacks it makes them.
type file struct {
	name string
	data []byte
	link string // of a symbolic link
	mode int64
}

func tarball(files []file) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode | 0o444, Size: int64(len(f.data))}
		if f.link != "" {
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.link, 0o777
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.name, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.name, err)
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// marshal is for values that cannot fail: maps, strings and numbers.
func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
