package state

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const validity = 10 * 365 * 24 * time.Hour

// Authority signs certificates. It is kept from run to run, so that a client
// certificate or a kubeconfig made in one run is good in the next.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// Leaf says whom a certificate is for. One with Hosts is a server's
// certificate, one without is a client's.
type Leaf struct {
	Name   string   // common name: the user, for a client
	Groups []string // organizations: the user's groups
	Hosts  []string // DNS names and IP addresses
}

// Authority loads pki/NAME.crt and pki/NAME.key, or makes them. A process killed
// in between leaves a key without a certificate, which the next run makes.
func (d *Dir) Authority(name string) (*Authority, error) {
	key, err := d.SigningKey(name)
	if err != nil {
		return nil, err
	}
	file := filepath.Join("pki", name+".crt")
	known, err := certutil.CertsFromFile(d.Path(file))
	if err == nil {
		return &Authority{known[0], key}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: name, NotBefore: begin()}, key)
	if err != nil {
		return nil, err
	}
	a := &Authority{cert, key}
	return a, d.write(file, 0o644, a.PEM())
}

// SigningKey loads pki/NAME.key, or makes it. It is the key that signs
// ServiceAccount tokens: kept, so that tokens outlive a restart.
func (d *Dir) SigningKey(name string) (crypto.Signer, error) {
	file := filepath.Join("pki", name+".key")
	data, err := os.ReadFile(d.Path(file))
	if errors.Is(err, fs.ErrNotExist) {
		if data, err = keyutil.MakeEllipticPrivateKeyPEM(); err == nil {
			err = d.write(file, 0o600, data)
		}
	}
	if err != nil {
		return nil, err
	}
	key, err := signer(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Path(file), err)
	}
	return key, nil
}

func signer(keyPEM []byte) (crypto.Signer, error) {
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, err
	}
	return key.(crypto.Signer), nil // of RSA or of an elliptic curve: both sign
}

// Issue signs a new certificate with a new key, both in PEM.
func (a *Authority) Issue(leaf Leaf) (certPEM, keyPEM []byte, err error) {
	if keyPEM, err = keyutil.MakeEllipticPrivateKeyPEM(); err != nil {
		return nil, nil, err
	}
	key, err := signer(keyPEM)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		Subject:      pkix.Name{CommonName: leaf.Name, Organization: leaf.Groups},
		SerialNumber: serial,
		NotBefore:    begin(), NotAfter: begin().Add(validity),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(leaf.Hosts) > 0 {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	for _, host := range leaf.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	return pemCert(der), keyPEM, err
}

// IssueFile is Issue into pki/NAME.crt and pki/NAME.key. Leaves are made anew
// at each start: the address may have changed, and no client pins them.
func (d *Dir) IssueFile(a *Authority, name string, leaf Leaf) error {
	cert, key, err := a.Issue(leaf)
	if err != nil {
		return err
	}
	if err := d.write(filepath.Join("pki", name+".key"), 0o600, key); err != nil {
		return err
	}
	return d.write(filepath.Join("pki", name+".crt"), 0o644, cert)
}

// PEM is the authority's certificate.
func (a *Authority) PEM() []byte { return pemCert(a.cert.Raw) }

// begin is an hour ago: a virtual machine restored from a saved state may join
// with a clock that is behind.
func begin() time.Time { return time.Now().Add(-time.Hour) }

func pemCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der})
}
