package state

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func open(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestOneProcessHoldsTheDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new")
	d := open(t, path)
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "in use by another control plane") {
		t.Errorf("second Open: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, want 0700: it holds keys", info.Mode().Perm())
	}
}

func TestPortIsRememberedAndNotEphemeral(t *testing.T) {
	d := open(t, t.TempDir())
	floor, err := ephemeralFloor()
	if err != nil {
		t.Fatal(err)
	}
	port, err := d.Port("127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	if port < lowestPort || port >= floor {
		t.Errorf("port %d, want one in [%d, %d)", port, lowestPort, floor)
	}
	for _, c := range []struct{ wanted, want int }{{0, port}, {12345, 12345}, {0, 12345}} {
		if got, err := d.Port("127.0.0.1", c.wanted); err != nil || got != c.want {
			t.Errorf("Port(%d) = %d, %v; want %d", c.wanted, got, err, c.want)
		}
	}
}

func TestFreePortIsFree(t *testing.T) {
	port, err := freePort("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

func authority(t *testing.T, d *Dir) *Authority {
	t.Helper()
	a, err := d.Authority("ca")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAuthorityIsKept(t *testing.T) {
	d := open(t, t.TempDir())
	first := authority(t, d)
	again := authority(t, d)
	if !bytes.Equal(first.PEM(), again.PEM()) {
		t.Error("a second call made another authority")
	}
	// What the first signed is good for the second.
	cert, _, err := first.Issue(Leaf{Name: "client"})
	if err != nil {
		t.Fatal(err)
	}
	verify(t, again, parse(t, cert), x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

// A process killed between the two files leaves the key alone.
func TestHalfMadeAuthorityIsMadeAgain(t *testing.T) {
	d := open(t, t.TempDir())
	if _, err := d.Authority("ca"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(d.Path("pki", "ca.crt")); err != nil {
		t.Fatal(err)
	}
	made := authority(t, d)
	cert, _, err := made.Issue(Leaf{Name: "client"})
	if err != nil {
		t.Fatal(err)
	}
	verify(t, made, parse(t, cert), x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
}

func TestServerCertificate(t *testing.T) {
	d := open(t, t.TempDir())
	ca := authority(t, d)
	if err := d.IssueFile(ca, "server", Leaf{Name: "server", Hosts: []string{"127.0.0.1", "localhost"}}); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(d.Path("pki", "server.crt"), d.Path("pki", "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		verify(t, ca, pair.Leaf, x509.VerifyOptions{DNSName: host})
	}
	if pair.Leaf.VerifyHostname("10.0.0.1") == nil {
		t.Error("good for an address that it was not made for")
	}
}

func TestSigningKeyIsKept(t *testing.T) {
	d := open(t, t.TempDir())
	first, err := d.SigningKey("sa")
	if err != nil {
		t.Fatal(err)
	}
	again, err := d.SigningKey("sa")
	if err != nil {
		t.Fatal(err)
	}
	if !first.Equal(again) {
		t.Error("a second call made another key: tokens would not outlive a restart")
	}
}

func TestKubeconfig(t *testing.T) {
	d := open(t, t.TempDir())
	ca := authority(t, d)
	data, err := ca.Kubeconfig("https://127.0.0.1:1", Leaf{Name: "admin", Groups: []string{"system:masters"}})
	if err != nil {
		t.Fatal(err)
	}
	path, err := d.WriteKubeconfig("admin", data)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://127.0.0.1:1" || !bytes.Equal(config.CAData, ca.PEM()) {
		t.Errorf("host %s, or another authority", config.Host)
	}
	subject := parse(t, config.CertData).Subject
	if subject.CommonName != "admin" || len(subject.Organization) != 1 || subject.Organization[0] != "system:masters" {
		t.Errorf("subject %v", subject)
	}
	if _, err := os.Stat(path + ".tmp"); !os.IsNotExist(err) {
		t.Errorf("a temporary file was left: %v", err)
	}
}

func parse(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatal("no PEM block")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func verify(t *testing.T, ca *Authority, cert *x509.Certificate, options x509.VerifyOptions) {
	t.Helper()
	options.Roots = x509.NewCertPool()
	options.Roots.AddCert(ca.cert)
	if _, err := cert.Verify(options); err != nil {
		t.Error(err)
	}
}
