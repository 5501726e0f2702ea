package webconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/certs"
)

// right is the password of the user prometheus, at bcrypt's lowest cost.
const (
	right   = "right password"
	users   = "basic_auth_users: {prometheus: '$2a$04$02V0i0o5LW3QW2gphPpCM.W9f4TZl8JJ3BwDAT5CKprmC6Rt/iLcC'}\n"
	withTLS = "tls_server_config: {cert_file: server.crt, key_file: server.key"
)

// directory has the files of a server, and web.yml with this text.
func directory(t *testing.T, text string) (a *certs.Authority, dir, file string) {
	t.Helper()
	dir = t.TempDir()
	a, file = certs.NewAuthority(t), filepath.Join(dir, "web.yml")
	a.Write(t, dir, "node-a")
	certs.Replace(t, file, []byte(text))
	return a, dir, file
}

// Each mistake is one sentence with the file's name, and without a value that may be a secret.
func TestCheck(t *testing.T) {
	_, dir, file := directory(t, "")
	if err := os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":            "",
		users:         "",
		withTLS + "}": "",
		withTLS + ", client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt}":                                    "",
		withTLS + ", min_version: TLS13, cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256], curve_preferences: [X25519]}": "",
		"http_server_config: {http2: true, headers: {X-Frame-Options: deny}}":                                                  "",
		"rate_limit: {interval: 1s, burst: 2}":                                                                                 "",

		"tls_server_config: {cert_fil: a}":                                        `DIR/web.yml: line 1: unknown key "cert_fil"`,
		"basic_auth_users: s3cret":                                                "DIR/web.yml: line 1: the value has another type than its key",
		"rate_limit: {burst: 1}\nrate_limit: {burst: 2}":                          `DIR/web.yml: line 2: key "rate_limit" stands there twice`,
		"basic_auth_users: {a: b":                                                 "DIR/web.yml: yaml: line 1: did not find expected ',' or '}'",
		"basic_auth_users: {a: s3cret}":                                           `DIR/web.yml: basic_auth_users: what "a" has is no hash of bcrypt`,
		strings.Replace(users, "$04$", "$17$", 1):                                 `DIR/web.yml: basic_auth_users: the hash of "prometheus" has cost 17, more than 16`,
		"http_server_config: {headers: {Server: x}}":                              `DIR/web.yml: headers: "Server" cannot be set`,
		"http_server_config: {headers: {X-Frame-Options: x}}":                     `DIR/web.yml: headers: X-Frame-Options cannot be "x"`,
		"rate_limit: {interval: 1s}":                                              "DIR/web.yml: rate_limit: burst has to be 1 at least: no request would be served",
		"tls_server_config: {key_file: server.key}":                               "DIR/web.yml: tls_server_config: there is no cert_file",
		"tls_server_config: {cert_file: server.crt}":                              "DIR/web.yml: tls_server_config: there is no key_file",
		"tls_server_config: {cert_file: gone, key_file: server.key}":              "DIR/web.yml: tls_server_config: open DIR/gone: no such file or directory",
		"tls_server_config: {cert_file: server.crt, key_file: gone}":              "DIR/web.yml: tls_server_config: open DIR/gone: no such file or directory",
		"tls_server_config: {cert_file: ca.crt, key_file: server.key}":            "DIR/web.yml: tls_server_config: DIR/ca.crt and DIR/server.key: tls: private key does not match public key",
		withTLS + ", min_version: SSL3}":                                          `DIR/web.yml: tls_server_config: min_version: "SSL3" is no version of TLS`,
		withTLS + ", max_version: SSL3}":                                          `DIR/web.yml: tls_server_config: max_version: "SSL3" is no version of TLS`,
		withTLS + ", cipher_suites: [RC4]}":                                       `DIR/web.yml: tls_server_config: cipher_suites: "RC4" is no cipher suite of Go`,
		withTLS + ", curve_preferences: [P1]}":                                    `DIR/web.yml: tls_server_config: curve_preferences: "P1" is no curve of this format`,
		withTLS + ", client_auth_type: Ask}":                                      `DIR/web.yml: tls_server_config: client_auth_type: "Ask" is no policy of crypto/tls`,
		withTLS + ", client_ca_file: ca.crt}":                                     "DIR/web.yml: tls_server_config: client_ca_file is there, and no client_auth_type",
		withTLS + ", client_auth_type: RequireAndVerifyClientCert}":               "DIR/web.yml: tls_server_config: client_auth_type is RequireAndVerifyClientCert, and there is no client_ca_file",
		withTLS + ", client_auth_type: NoClientCert, client_ca_file: gone}":       "DIR/web.yml: tls_server_config: open DIR/gone: no such file or directory",
		withTLS + ", client_auth_type: RequestClientCert, client_ca_file: empty}": "DIR/web.yml: tls_server_config: DIR/empty has no certificate",
		strings.Repeat("#", most+1):                                               "DIR/web.yml is larger than 1048576 bytes",
	} {
		certs.Replace(t, file, []byte(text))
		got := ""
		if err := Check(file); err != nil {
			got = strings.ReplaceAll(err.Error(), dir, "DIR")
		}
		if got != want {
			t.Errorf("%.80q\ngot  %q\nwant %q", text, got, want)
		}
	}
	if err := Check(""); err != nil {
		t.Errorf("no file: %v", err)
	}
	if err := Check(dir + "/gone"); err == nil || !strings.HasSuffix(err.Error(), "/gone: no such file or directory") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// What another machine may read or overhear is told, by the address and the file.
func TestRisk(t *testing.T) {
	_, _, file := directory(t, "")
	const open, inClear = "without a password or a certificate", "whose passwords are sent without TLS"
	for text, want := range map[string]string{
		"": open, users: inClear, withTLS + "}": open, withTLS + "}\n" + users: "",
		withTLS + ", client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt}": "",
		withTLS + ", client_auth_type: RequireAnyClientCert}":                               open, // any certificate that it made itself
		"unknown: key": "",
	} {
		certs.Replace(t, file, []byte(text))
		for _, address := range []string{":9812", "192.0.2.1:9812", "node-a:9812"} {
			got := Risk(address, file)
			if !strings.HasSuffix(got, want) || (got == "") != (want == "") {
				t.Errorf("%q at %s: %q, want %q", text, address, got, want)
			}
		}
		for _, address := range []string{"", "127.0.0.1:9812", "[::1]:9812", "localhost:9812"} {
			if got := Risk(address, file); got != "" {
				t.Errorf("%q at %s: %q", text, address, got)
			}
		}
	}
	if got := Risk(":9812", ""); got != `":9812" is reachable from other machines, `+open {
		t.Errorf("without a file: %q", got)
	}
}

func TestExposed(t *testing.T) {
	_, dir, file := directory(t, withTLS+"}\n"+users)
	if got := Exposed(file); got != nil {
		t.Errorf("%q", got)
	}
	for _, name := range []string{"web.yml", "server.key", "server.crt"} {
		if err := os.Chmod(filepath.Join(dir, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := strings.ReplaceAll(strings.Join(Exposed(file), "\n"), dir, "DIR")
	if want := "every user of the host can read DIR/server.key (mode 0644)\nevery user of the host can read DIR/web.yml (mode 0644)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
