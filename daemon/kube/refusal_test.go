package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// certified is a server at the loopback with a certificate that signs itself, for an address and a
// time.
func certified(t *testing.T, address string, from, to time.Time) *clientcmdapi.Cluster {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to, IPAddresses: []net.IP{net.ParseIP(address)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return &clientcmdapi.Cluster{
		Server:                   server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}
}

// program is a user whose credentials a program gives.
func program(version, command string, args ...string) *clientcmdapi.AuthInfo {
	return &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: version, Command: command, Args: args, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
}

// Each reason for which there is no response of an API server is told from the others, on real
// connections.
func TestRefusal(t *testing.T) {
	now, hour := time.Now(), time.Hour
	good := func() *clientcmdapi.Cluster { return certified(t, "127.0.0.1", now.Add(-hour), now.Add(hour)) }
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer raw.Close()
	go func() {
		for c, err := raw.Accept(); err == nil; c, err = raw.Accept() {
			fmt.Fprint(c, "220 mail.example ESMTP\r\n")
			_ = c.Close()
		}
	}()
	const v1 = "client.authentication.k8s.io/v1"
	other := good()
	other.CertificateAuthorityData = good().CertificateAuthorityData
	proxied, socks := good(), good()
	proxied.ProxyURL, socks.ProxyURL = "http://127.0.0.1:1", "socks5://127.0.0.1:1"
	for name, c := range map[string]struct {
		cluster *clientcmdapi.Cluster
		user    *clientcmdapi.AuthInfo
		want    string
	}{
		"a response":               {good(), nil, ""},
		"another authority":        {other, nil, NotTrusted},
		"an expired certificate":   {certified(t, "127.0.0.1", now.Add(-2*hour), now.Add(-hour)), nil, NotValidNow},
		"one that is not valid":    {certified(t, "127.0.0.1", now.Add(hour), now.Add(2*hour)), nil, NotValidNow},
		"a certificate of another": {certified(t, "127.0.0.2", now.Add(-hour), now.Add(hour)), nil, OtherName},
		"plain HTTP":               {&clientcmdapi.Cluster{Server: strings.Replace(plain.URL, "http:", "https:", 1)}, nil, NoTLS},
		"another protocol":         {&clientcmdapi.Cluster{Server: "https://" + raw.Addr().String()}, nil, NoTLS},
		"TLS at an http address":   {&clientcmdapi.Cluster{Server: strings.Replace(good().Server, "https:", "http:", 1)}, nil, WantsTLS},
		"no program":               {good(), program(v1, "/nonexistent"), NoCredential},
		"a program that fails":     {good(), program(v1, "false"), NoCredential},
		"a program of another version": {
			good(), program(v1, "echo", `{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","status":{"token":"t"}}`), NoCredential,
		},
		"a proxy that is away":       {proxied, nil, ProxyAway},
		"a SOCKS proxy that is away": {socks, nil, ProxyAway},
		"nothing":                    {&clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}, nil, Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			if c.user == nil {
				c.user = &clientcmdapi.AuthInfo{Token: "t"}
			}
			config := clientcmdapi.NewConfig()
			config.Clusters["c"], config.AuthInfos["u"] = c.cluster, c.user
			config.Contexts["x"], config.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}, "x"
			file := filepath.Join(t.TempDir(), "kubeconfig")
			must(t, clientcmd.WriteToFile(*config, file))
			client, err := New(Options{Kubeconfig: file})
			must(t, err)
			if _, err := client.ServerVersion(t.Context()); err == nil || Refusal(err) != c.want {
				t.Errorf("%q of %v, want %q", Refusal(err), err, c.want)
			}
		})
	}
}

// A credential that the server ignores is told from an identity without rights.
func TestIgnored(t *testing.T) {
	t.Parallel()
	file := credentials(t, plane.Config().Host, &clientcmdapi.AuthInfo{Username: "a", Password: "b"})
	c, err := New(Options{Kubeconfig: file})
	must(t, err)
	if _, err := c.Whoami(t.Context()); !Ignored(err) {
		t.Errorf("of a user name and password: %v", err)
	}
	c, err = New(Options{Kubeconfig: bound(t, "ignored", false)})
	must(t, err)
	if _, err := c.GetVolume(t.Context(), "none"); Ignored(err) || Refusal(err) != Forbidden {
		t.Errorf("of an identity without rights: %v", err)
	}
}
