package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/certs"
)

const (
	webUsers = "basic_auth_users: {prometheus: '$2a$04$02V0i0o5LW3QW2gphPpCM.W9f4TZl8JJ3BwDAT5CKprmC6Rt/iLcC'}\n"
	webTLS   = "tls_server_config: {cert_file: server.crt, key_file: server.key"
)

// webDirectory has the files of a server, and web.yml with this text.
func webDirectory(t *testing.T, text string) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	file = filepath.Join(dir, "web.yml")
	certs.NewAuthority(t).Write(t, dir, "node-a")
	certs.Replace(t, file, []byte(text))
	return dir, file
}

// What another machine may read or overhear is told, by the address and the file.
func TestWebRisk(t *testing.T) {
	_, file := webDirectory(t, "")
	const open, inClear = "without a password or a certificate", "whose passwords are sent without TLS"
	for text, want := range map[string]string{
		"": open, webUsers: inClear, webTLS + "}": open, webTLS + "}\n" + webUsers: "",
		webTLS + ", client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt}": "",
		webTLS + ", client_auth_type: RequireAnyClientCert}":                               open, // any certificate that it made itself
	} {
		certs.Replace(t, file, []byte(text))
		f, err := readWeb(file)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		for _, address := range []string{":9812", "192.0.2.1:9812", "node-a:9812"} {
			got := webRisk(address, f)
			if !strings.HasSuffix(got, want) || (got == "") != (want == "") {
				t.Errorf("%q at %s: %q, want %q", text, address, got, want)
			}
		}
		for _, address := range []string{"", "127.0.0.1:9812", "[::1]:9812", "localhost:9812"} {
			if got := webRisk(address, f); got != "" {
				t.Errorf("%q at %s: %q", text, address, got)
			}
		}
	}
}

// A mistake is told in one line with the names of both files, and is no reason against the rest.
func TestWebMistake(t *testing.T) {
	dir, web := webDirectory(t, "")
	for text, want := range map[string]string{
		webTLS + "}\n" + webUsers: "",
		"tls_server_config: {cert_fil: a}": "DIR/web.yml: yaml: unmarshal errors: " +
			"line 1: field cert_fil not found in type web.TLSConfig",
		"basic_auth_users: {a: b}": "DIR/web.yml: crypto/bcrypt: hashedSecret too short to be a bcrypted password",
		"tls_server_config: {cert_file: gone, key_file: server.key}": "failed to read cert_file (DIR/gone): " +
			"open DIR/gone: no such file or directory",
	} {
		certs.Replace(t, web, []byte(text))
		c := load(t, "metrics_web_config = '"+web+"'\n"+minimal)
		got := ""
		if c.WebError != nil {
			got = strings.ReplaceAll(c.WebError.Error(), dir, "DIR")
		}
		if !strings.HasSuffix(got, want) || (got == "") != (want == "") {
			t.Errorf("%q\ngot  %q\nwant %q", text, got, want)
		}
		if got != "" && !strings.Contains(got, "config.toml:1: metrics_web_config: ") {
			t.Errorf("%q: %q names no key", text, got)
		}
	}
	if c := load(t, "metrics_web_config = '"+dir+"/gone'\n"+minimal); c.WebError == nil ||
		!strings.HasSuffix(c.WebError.Error(), "/gone: no such file or directory") {
		t.Errorf("a file that is not there: %v", c.WebError)
	}
}

func TestWebExposed(t *testing.T) {
	dir, file := webDirectory(t, webTLS+"}\n"+webUsers)
	f, err := readWeb(file)
	if got := webExposed(file, f); got != nil || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, name := range []string{"web.yml", "server.key", "server.crt"} {
		if err := os.Chmod(filepath.Join(dir, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := strings.ReplaceAll(strings.Join(webExposed(file, f), "\n"), dir, "DIR")
	want := "every user of the host can read DIR/server.key (mode 0644)\n" +
		"every user of the host can read DIR/web.yml (mode 0644)"
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The confinement is told each file of which the daemon reads, by an absolute path, also of a file
// with a mistake.
func TestWebFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yml")
	const named = "tls_server_config: {cert_file: /a/crt, key_file: ../key, client_ca_file: ca/crt"
	names := []string{file, "/a/crt", filepath.Dir(dir) + "/key", dir + "/ca/crt"}
	for text, want := range map[string][]string{
		"":                            {file},
		"no: key":                     {file},
		webTLS + "}":                  {file, dir + "/server.crt", dir + "/server.key"},
		named + "}":                   names,
		named + ", min_version: bad}": names,
		named + ", no: key}":          names,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := (Config{MetricsWebConfig: file}).WebFiles(); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	gone := dir + "/gone"
	if got := (Config{MetricsWebConfig: gone}).WebFiles(); !slices.Equal(got, []string{gone}) {
		t.Errorf("of a file that is not there: %q", got)
	}
	if got := (Config{}).WebFiles(); got != nil {
		t.Errorf("of none: %q", got)
	}
}
