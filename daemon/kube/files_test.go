package kube

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What a kubeconfig names counts, of its current context alone, and relative to where it lies.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "kubeconfig")
	text := `
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}, {name: there, context: {cluster: other, user: other}}]
clusters: [{name: c, cluster: {server: "https://a", certificate-authority: pki/ca.crt}}, {name: other, cluster: {server: "https://b", certificate-authority: /elsewhere/ca.crt}}]
users: [{name: u, user: {tokenFile: /run/token, exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, interactiveMode: Never}}}, {name: other, user: {tokenFile: /elsewhere/token}}]
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	files, program := Files(file)
	if want := []string{file, dir + "/pki/ca.crt", "/run/token"}; !slices.Equal(files, want) || program != dir+"/plugin" {
		t.Errorf("%q and %q, want %q", files, program, want)
	}
	if files, program := Files(dir + "/missing"); !slices.Equal(files, []string{dir + "/missing"}) || program != "" {
		t.Errorf("without a file: %q and %q", files, program)
	}
}
