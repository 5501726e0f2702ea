// Package image writes archives of container images for a runtime to import: the tests that run
// pods have no registry to pull from.
//
// It reads no images, compresses nothing, and makes one layer.
package image

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
	"strings"
)

// Image is what a pod may name.
type Image struct {
	Name       string   // with its tag, as it is to be found by
	Files      []File   // all that there is; directories are made as needed
	Entrypoint []string // what runs if the pod does not say
	Cmd        []string // its arguments if the pod does not say
}

// File is an entry of an archive.
type File struct {
	Name string // without a leading slash; with one at the end it is a directory
	Data []byte
	Link string // of a symbolic link, which has no data
	Mode int64  // every user may read it in any case
}

// applets are the names that the busybox of an image has.
var applets = []string{"sh", "cat", "date", "grep", "id", "ls", "sleep", "stat", "test"}

// Busybox is an image of a static busybox, from that file. It sleeps, whatever arguments it gets,
// which makes it fit to hold a pod's sandbox too.
func Busybox(name, program string) (Image, error) {
	data, err := os.ReadFile(program)
	files := []File{{Name: "bin/busybox", Data: data, Mode: 0o755}}
	for _, applet := range applets {
		files = append(files, File{Name: "bin/" + applet, Link: "busybox"})
	}
	return Image{Name: name, Files: files, Entrypoint: []string{"/bin/sh", "-c", "exec sleep infinity"}}, err
}

// Program is an image of one static program, from that file, in /usr/local/bin.
func Program(name, program, as string) (Image, error) {
	data, err := os.ReadFile(program)
	path := "usr/local/bin/" + as
	return Image{Name: name, Files: []File{{Name: path, Data: data, Mode: 0o755}}, Entrypoint: []string{"/" + path}}, err
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Save writes the archive into a new file.
func (i Image) Save(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := i.Write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// Write writes an archive of an OCI image layout (image-layout.md of the OCI image specification).
func (i Image) Write(w io.Writer) error {
	layer, err := tarball(i.Files)
	if err != nil {
		return err
	}
	blobs := []File{{Name: "oci-layout", Data: []byte(`{"imageLayoutVersion":"1.0.0"}`)}}
	add := func(mediaType string, data []byte) descriptor {
		sum := sha256.Sum256(data)
		digest := hex.EncodeToString(sum[:])
		blobs = append(blobs, File{Name: "blobs/sha256/" + digest, Data: data})
		return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(data)}
	}
	rootfs := add("application/vnd.oci.image.layer.v1.tar", layer)
	config := add("application/vnd.oci.image.config.v1+json", marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": i.Entrypoint, "Cmd": i.Cmd, "Env": []string{"PATH=/usr/local/bin:/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{rootfs.Digest}},
	}))
	manifest := add("application/vnd.oci.image.manifest.v1+json", marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": config, "layers": []descriptor{rootfs},
	}))
	manifest.Annotations = map[string]string{"io.containerd.image.name": i.Name}
	blobs = append(blobs, File{Name: "index.json", Data: marshal(map[string]any{
		"schemaVersion": 2, "manifests": []descriptor{manifest},
	})})
	archive, err := tarball(blobs)
	if err != nil {
		return err
	}
	_, err = w.Write(archive)
	return err
}

func tarball(files []File) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Mode: f.Mode | 0o444, Size: int64(len(f.Data))}
		switch {
		case f.Link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
		case strings.HasSuffix(f.Name, "/"):
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.Name, err)
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.Name, err)
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
