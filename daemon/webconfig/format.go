// Package webconfig reads the web configuration file of Prometheus' exporters and serves a listener
// by it: with TLS, client certificates, users, headers and a rate. The format is that of
// github.com/prometheus/exporter-toolkit (its page web-configuration.md).
//
// It does not listen, does not serve HTTP/2 and does not log.
package webconfig

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v2"
)

// format is the file as it is written. Keys that are not here are refused, as exporter-toolkit
// does.
type format struct {
	TLS struct {
		Cert         string   `yaml:"cert"`
		Key          string   `yaml:"key"`
		ClientCA     string   `yaml:"client_ca"`
		CertFile     string   `yaml:"cert_file"`
		KeyFile      string   `yaml:"key_file"`
		ClientCAFile string   `yaml:"client_ca_file"`
		ClientAuth   string   `yaml:"client_auth_type"`
		ClientSANs   []string `yaml:"client_allowed_sans"`
		MinVersion   string   `yaml:"min_version"`
		MaxVersion   string   `yaml:"max_version"`
		Ciphers      []string `yaml:"cipher_suites"`
		Curves       []string `yaml:"curve_preferences"`
		PreferServer bool     `yaml:"prefer_server_cipher_suites"` // without effect since Go 1.17
	} `yaml:"tls_server_config"`
	HTTP struct {
		HTTP2   bool              `yaml:"http2"` // without effect: see the package comment
		Headers map[string]string `yaml:"headers"`
	} `yaml:"http_server_config"`
	Users map[string]string `yaml:"basic_auth_users"`
	Rate  struct {
		Interval time.Duration `yaml:"interval"`
		Burst    int           `yaml:"burst"`
	} `yaml:"rate_limit"`
}

// most is more than any such file has, in bytes, with certificates in it.
const most = 1 << 20

// parse reads a file. Relative paths in it are relative to its directory.
func parse(path string) (f format, err error) {
	text, err := readFile(path)
	if err != nil {
		return f, err
	}
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return f, fmt.Errorf("%s: %w", path, plain(err))
	}
	for _, file := range []*string{&f.TLS.CertFile, &f.TLS.KeyFile, &f.TLS.ClientCAFile} {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(filepath.Dir(path), *file)
		}
	}
	return f, nil
}

// readFile reads a file that is not larger than most.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	return text, err
}

var (
	unknownKey  = regexp.MustCompile(`^(line \d+): field (\S+) not found in type `)
	repeatedKey = regexp.MustCompile(`^(line \d+): (?:field|key) (\S+) already set in `)
	wrongType   = regexp.MustCompile(`^(line \d+): cannot unmarshal `)
)

// plain is the first of a parser's errors, in one line without Go's types and without the value,
// which may be a secret.
func plain(err error) error {
	several := new(yaml.TypeError)
	if !errors.As(err, &several) || len(several.Errors) == 0 {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", " "))
	}
	first := several.Errors[0]
	if found := unknownKey.FindStringSubmatch(first); found != nil {
		return fmt.Errorf("%s: unknown key %q", found[1], found[2])
	}
	if found := repeatedKey.FindStringSubmatch(first); found != nil {
		return fmt.Errorf("%s: key %q stands there twice", found[1], strings.Trim(found[2], `"`))
	}
	if found := wrongType.FindStringSubmatch(first); found != nil {
		return fmt.Errorf("%s: the value has another type than its key", found[1])
	}
	return errors.New(first)
}

// files are the files that the configuration names.
func (f format) files() (all []string) {
	for _, file := range []string{f.TLS.CertFile, f.TLS.KeyFile, f.TLS.ClientCAFile} {
		if file != "" {
			all = append(all, file)
		}
	}
	return all
}

// encrypts reports whether the file asks for TLS: by any of these keys, as in exporter-toolkit, so
// that a certificate that is missing is an error and not a server in plain text.
func (f format) encrypts() bool {
	t := f.TLS
	return t.Cert+t.Key+t.CertFile+t.KeyFile+t.ClientCA+t.ClientCAFile+t.ClientAuth != ""
}

// content is a value that is in the file, or in a file that it names.
func content(file, text string) ([]byte, error) {
	if file == "" {
		return []byte(text), nil
	}
	return readFile(file)
}

// number finds a name in a table.
func number[T any](name, what string, table map[string]T) (T, error) {
	value, known := table[name]
	if !known {
		return value, fmt.Errorf("%q is no %s", name, what)
	}
	return value, nil
}

// numbers is number for a list; nil for none.
func numbers[T any](names []string, what string, table map[string]T) (all []T, err error) {
	for _, name := range names {
		one, err := number(name, what, table)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

var versions = map[string]uint16{"TLS13": tls.VersionTLS13, "TLS12": tls.VersionTLS12, "TLS11": tls.VersionTLS11, "TLS10": tls.VersionTLS10}

var curves = map[string]tls.CurveID{"CurveP256": tls.CurveP256, "CurveP384": tls.CurveP384, "CurveP521": tls.CurveP521, "X25519": tls.X25519}

func ciphers() map[string]uint16 {
	all := map[string]uint16{}
	for _, one := range tls.CipherSuites() {
		all[one.Name] = one.ID
	}
	return all
}

// clientAuth are the names of crypto/tls, and one of earlier files.
var clientAuth = map[string]tls.ClientAuthType{
	"": tls.NoClientCert, "NoClientCert": tls.NoClientCert, "RequestClientCert": tls.RequestClientCert,
	"RequireAnyClientCert": tls.RequireAnyClientCert, "RequireClientCert": tls.RequireAnyClientCert,
	"VerifyClientCertIfGiven": tls.VerifyClientCertIfGiven, "RequireAndVerifyClientCert": tls.RequireAndVerifyClientCert,
}

// headers are those that the file may set, with the values where they are a list.
var headers = map[string][]string{
	"Content-Security-Policy": nil, "Strict-Transport-Security": nil, "X-XSS-Protection": nil,
	"X-Content-Type-Options": {"nosniff"}, "X-Frame-Options": {"deny", "sameorigin"},
}
