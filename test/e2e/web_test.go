package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/certs"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// web is a daemon that serves its metrics at every address by a web configuration, whose files are
// in a directory of their own.
type web struct {
	*host
	authority     *certs.Authority
	dir, file     string
	port          string
	client, known *http.Client // without and with a certificate
}

const password = "a scraper's password"

func (w *environment) newWeb(text string) *web {
	w.Helper()
	o := &web{host: w.newHost("a"), authority: certs.NewAuthority(w), dir: hosttest.Dir(w)}
	_, o.port, _ = strings.Cut(o.serving().address, ":")
	o.file = filepath.Join(o.dir, "web.yml")
	o.authority.Write(w, o.dir, "node-a")
	o.write(text)
	config := o.config()
	w.Must(o.Configure(fmt.Sprintf("metrics_web_config = %q\n", o.file) + strings.Replace(config, o.address, "0.0.0.0:"+o.port, 1)))
	own := o.authority.Client(w, "prometheus")
	o.client, o.known = o.newClient(), o.newClient(own)
	return o
}

// newClient returns a client that makes a connection for each request, as curl does.
func (o *web) newClient(own ...tls.Certificate) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: o.authority.Pool(), Certificates: own}}}
}

// write replaces the file, with the hash of the password for HASH.
func (o *web) write(text string) {
	o.w.Helper()
	hash := need(bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost))(o.w)
	certs.Replace(o.w, o.file, []byte(strings.ReplaceAll(text, "HASH", string(hash))))
}

// refused is in the place of a status: the connection may be reset before the reason is read.
const refused = "refused"

// scrape returns the status of /metrics, or refused, and the name in the certificate.
func (o *web) scrape(c *http.Client, scheme, sent string) (got, name string) {
	o.w.Helper()
	request, err := http.NewRequest(http.MethodGet, scheme+"://127.0.0.1:"+o.port+"/metrics", nil)
	o.w.Must(err)
	if sent != "" {
		request.SetBasicAuth("prometheus", sent)
	}
	response, err := c.Do(request)
	if err != nil {
		o.w.Log(err)
		return refused, ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if got = fmt.Sprint(response.StatusCode); got == "200" && !strings.Contains(string(body), "\nhostpath_provisioner_ready ") || err != nil {
		got = fmt.Sprintf("%v and a page without metrics: %s", err, body)
	}
	if response.TLS != nil {
		name = response.TLS.PeerCertificates[0].Subject.CommonName
	}
	return got, name
}

func (o *web) wantScrape(when string, c *http.Client, scheme, sent, status, name string) {
	o.w.Helper()
	if got, server := o.scrape(c, scheme, sent); got != status || server != name {
		o.w.Errorf("%s: %s of %q, want %s of %q", when, got, server, status, name)
	}
}

// Prometheus on another host scrapes over TLS, with a password or a certificate, and others do not.
// What is replaced counts at once, under a daemon that is confined; a mistake is refused, and keeps
// all out until it is mended.
func TestMetricsForAnotherHost(t *testing.T) {
	const encrypted = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"
	const user = "basic_auth_users:\n  prometheus: HASH\n"
	o := newEnvironment(t).newWeb(encrypted + user)
	o.run()
	o.logged().Says("confined by Landlock").Lacks("reachable")
	o.wantScrape("the password", o.client, "https", password, "200", "node-a")
	o.wantScrape("another password", o.client, "https", "guessed", "401", "node-a")
	o.wantScrape("no password", o.client, "https", "", "401", "node-a")
	o.wantScrape("plain text", o.client, "http", password, "400", "")
	o.authority.Write(t, o.dir, "node-b")
	o.wantScrape("another certificate", o.client, "https", password, "200", "node-b")

	o.write(encrypted + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n")
	o.wantScrape("a client's certificate", o.known, "https", "", "200", "node-b")
	o.wantScrape("none", o.client, "https", password, refused, "")

	o.write(encrypted + "  client_auth: RequireAndVerifyClientCert\n")
	mistake := "metrics_web_config: " + o.file + ": yaml: unmarshal errors: line 4: field client_auth not found in type web.TLSConfig"
	o.call("check", "--config-only").Ends(2, "config.toml:1: "+mistake+"\n")
	o.w.Must(o.Signal(syscall.SIGHUP))
	o.said("was not reloaded", 1)
	o.wantScrape("after a mistake", o.known, "https", "", refused, "")
	o.write(encrypted + user)
	o.wantScrape("without the mistake", o.client, "https", password, "200", "node-b")
}
