package webconfig

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/time/rate"
)

// config is a file that was read and is valid.
type config struct {
	tls      *tls.Config // nil: plain text
	headers  map[string]string
	accounts accounts
	limiter  *rate.Limiter // nil: no limit
}

// mostCost is the most expensive password that is taken. One comparison takes seconds then, and
// each step doubles it.
const mostCost = 16

// read reads the file at path and those that it names.
func read(path string) (*config, error) {
	f, err := parse(path)
	if err != nil {
		return nil, err
	}
	c, err := f.config()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func (f format) config() (c *config, err error) {
	c = &config{headers: f.HTTP.Headers}
	for _, name := range slices.Sorted(maps.Keys(f.HTTP.Headers)) {
		allowed, known := headers[name]
		if !known {
			return nil, fmt.Errorf("headers: %q cannot be set", name)
		}
		if value := f.HTTP.Headers[name]; len(allowed) > 0 && !slices.Contains(allowed, value) {
			return nil, fmt.Errorf("headers: %s cannot be %q", name, value)
		}
	}
	if f.Rate.Interval != 0 {
		if f.Rate.Burst < 1 {
			return nil, errors.New("rate_limit: burst has to be 1 at least: no request would be served")
		}
		c.limiter = rate.NewLimiter(rate.Every(f.Rate.Interval), f.Rate.Burst)
	}
	if c.accounts, err = newAccounts(f.Users); err != nil {
		return nil, fmt.Errorf("basic_auth_users: %w", err)
	}
	if c.tls, err = f.tls(); err != nil {
		return nil, fmt.Errorf("tls_server_config: %w", err)
	}
	return c, nil
}

// tls is the server's configuration; nil without TLS. Sessions are not resumed: a resumed one would
// not look at the client's certificate again.
func (f format) tls() (*tls.Config, error) {
	if !f.encrypts() {
		return nil, nil
	}
	c := &tls.Config{NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true}
	certificate, err := f.certificate()
	if err != nil {
		return nil, err
	}
	c.Certificates = []tls.Certificate{certificate}
	if c.MinVersion, err = number(cmp.Or(f.TLS.MinVersion, "TLS12"), "version of TLS", versions); err != nil {
		return nil, fmt.Errorf("min_version: %w", err)
	}
	if c.MaxVersion, err = number(cmp.Or(f.TLS.MaxVersion, "TLS13"), "version of TLS", versions); err != nil {
		return nil, fmt.Errorf("max_version: %w", err)
	}
	if c.CipherSuites, err = numbers(f.TLS.Ciphers, "cipher suite of Go", ciphers()); err != nil {
		return nil, fmt.Errorf("cipher_suites: %w", err)
	}
	if c.CurvePreferences, err = numbers(f.TLS.Curves, "curve of this format", curves); err != nil {
		return nil, fmt.Errorf("curve_preferences: %w", err)
	}
	return c, f.clients(c)
}

func (f format) certificate() (tls.Certificate, error) {
	switch t := f.TLS; {
	case t.CertFile+t.Cert == "":
		return tls.Certificate{}, errors.New("there is no cert_file")
	case t.KeyFile+t.Key == "":
		return tls.Certificate{}, errors.New("there is no key_file")
	}
	certificate, err := content(f.TLS.CertFile, f.TLS.Cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := content(f.TLS.KeyFile, f.TLS.Key)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return pair, fmt.Errorf("%s and %s: %w", cmp.Or(f.TLS.CertFile, "cert"), cmp.Or(f.TLS.KeyFile, "key"), err)
	}
	return pair, nil
}

// clients configures the certificates of clients.
func (f format) clients(c *tls.Config) (err error) {
	if c.ClientAuth, err = number(f.TLS.ClientAuth, "policy of crypto/tls", clientAuth); err != nil {
		return fmt.Errorf("client_auth_type: %w", err)
	}
	if f.TLS.ClientCAFile+f.TLS.ClientCA != "" {
		authorities, err := content(f.TLS.ClientCAFile, f.TLS.ClientCA)
		if err != nil {
			return err
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(authorities) {
			return fmt.Errorf("%s has no certificate", cmp.Or(f.TLS.ClientCAFile, "client_ca"))
		}
		if c.ClientAuth == tls.NoClientCert {
			return errors.New("client_ca_file is there, and no client_auth_type")
		}
	} else if c.ClientAuth >= tls.VerifyClientCertIfGiven { // crypto/tls would take the host's own authorities
		return fmt.Errorf("client_auth_type is %s, and there is no client_ca_file", f.TLS.ClientAuth)
	}
	if f.TLS.ClientSANs != nil {
		c.VerifyConnection = f.allowed
	}
	return nil
}

// allowed refuses a client's certificate without one of client_allowed_sans. Without a certificate
// ClientAuth decides.
func (f format) allowed(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return nil
	}
	client := s.PeerCertificates[0]
	names := slices.Concat(client.DNSNames, client.EmailAddresses)
	for _, ip := range client.IPAddresses {
		names = append(names, ip.String())
	}
	for _, uri := range client.URIs {
		names = append(names, uri.String())
	}
	if slices.ContainsFunc(names, func(name string) bool { return slices.Contains(f.TLS.ClientSANs, name) }) {
		return nil
	}
	return errors.New("the client's certificate has none of client_allowed_sans")
}

func newAccounts(users map[string]string) (a accounts, err error) {
	for _, name := range slices.Sorted(maps.Keys(users)) {
		hash := []byte(users[name])
		if cost, err := bcrypt.Cost(hash); err != nil {
			return a, fmt.Errorf("what %q has is no hash of bcrypt", name)
		} else if cost > mostCost {
			return a, fmt.Errorf("the hash of %q has cost %d, more than %d", name, cost, mostCost)
		}
		a.users = append(a.users, user{name, hash})
	}
	if len(a.users) > 0 {
		a.comparing, a.salt, a.known = make(chan struct{}, 1), make([]byte, 32), &passwords{}
		a.waiting = &hosts{all: map[string]bool{}}
		rand.Read(a.salt) // never fails (crypto/rand)
	}
	return a, nil
}

// Check reports what is wrong with the file, and with those that it names, in one line; nil for
// path "", which is no file.
func Check(path string) error {
	if path == "" {
		return nil
	}
	_, err := read(path)
	return err
}

// Files are the file and those that it names, as far as it can be read; none for "".
func Files(path string) []string {
	if path == "" {
		return nil
	}
	f, _ := parse(path)
	return append([]string{path}, f.files()...)
}

// Risk is what is dangerous about metrics at this address (host:port, "" for none) with this file
// ("" for none), "" for nothing. A file that cannot be used has none: nothing is served by it.
func Risk(address, path string) string {
	var f format
	if path != "" {
		var err error
		if f, err = parse(path); err != nil {
			return ""
		}
	}
	certificates := clientAuth[f.TLS.ClientAuth] == tls.RequireAndVerifyClientCert
	switch {
	case !others(address):
		return ""
	case len(f.Users) == 0 && !certificates:
		return fmt.Sprintf("%q is reachable from other machines, without a password or a certificate", address)
	case !f.encrypts():
		return fmt.Sprintf("%q is reachable from other machines, whose passwords are sent without TLS", address)
	}
	return ""
}

// Exposed are the files with secrets that every user of the host can read, one sentence each.
func Exposed(path string) (all []string) {
	f, err := parse(path)
	if err != nil {
		return nil
	}
	secret := []string{f.TLS.KeyFile}
	if len(f.Users) > 0 || f.TLS.Key != "" {
		secret = append(secret, path)
	}
	for _, file := range secret {
		if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o004 != 0 {
			all = append(all, fmt.Sprintf("every user of the host can read %s (mode %04o)", file, info.Mode().Perm()))
		}
	}
	return all
}

// others reports whether other machines can connect to an address.
func others(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "localhost" {
		return false
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback()
}
