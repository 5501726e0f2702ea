package state

import (
	"crypto/ecdsa"
	"crypto/elliptic"
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
)

const validity = 10 * 365 * 24 * time.Hour

// Authority signs certificates. It is kept from run to run, so that a client
// certificate or a kubeconfig made in one run is good in the next.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Leaf says whom a certificate is for. One with Hosts is a server's
// certificate, one without is a client's.
type Leaf struct {
	Name   string   // common name: the user, for a client
	Groups []string // organizations: the user's groups
	Hosts  []string // DNS names and IP addresses
}

// Authority loads pki/NAME.crt and pki/NAME.key, or makes them.
//
// The certificate is written last and looked for first: a process killed in
// between leaves a key without a certificate, which the next run replaces.
func (d *Dir) Authority(name string) (*Authority, error) {
	certPEM, err := os.ReadFile(d.Path("pki", name+".crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return d.newAuthority(name)
	}
	if err != nil {
		return nil, err
	}
	key, err := d.SigningKey(name)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(certPEM)
	if block == nil {
		return nil, fmt.Errorf("%s: no PEM block", d.Path("pki", name+".crt"))
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Path("pki", name+".crt"), err)
	}
	return &Authority{cert: cert, key: key}, nil
}

func (d *Dir) newAuthority(name string) (*Authority, error) {
	key, err := d.newKey(name)
	if err != nil {
		return nil, err
	}
	template, err := template(pkix.Name{CommonName: name})
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{cert: cert, key: key}, d.write(filepath.Join("pki", name+".crt"), 0o644, pemCert(der))
}

// SigningKey loads pki/NAME.key, or makes it. It is the key that signs
// ServiceAccount tokens: kept, so that tokens outlive a restart.
func (d *Dir) SigningKey(name string) (*ecdsa.PrivateKey, error) {
	path := d.Path("pki", name+".key")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return d.newKey(name)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s: no PEM block", path)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

func (d *Dir) newKey(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	data, err := pemKey(key)
	if err != nil {
		return nil, err
	}
	return key, d.write(filepath.Join("pki", name+".key"), 0o600, data)
}

// Issue signs a new certificate with a new key, both in PEM.
func (a *Authority) Issue(leaf Leaf) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template, err := template(pkix.Name{CommonName: leaf.Name, Organization: leaf.Groups})
	if err != nil {
		return nil, nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
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
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = pemKey(key)
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

// template begins an hour ago: a virtual machine restored from a saved state
// may join with a clock that is behind.
func template(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		Subject:               subject,
		SerialNumber:          serial,
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(validity),
		BasicConstraintsValid: true,
	}, nil
}

func pemCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func pemKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
