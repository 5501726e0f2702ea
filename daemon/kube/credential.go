package kube

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Credential is what the client's credential says of itself. The API server alone knows whether
// that is true.
type Credential struct {
	Namespace, Account, AccountUID string // of a ServiceAccount's token
	Node, NodeUID                  string // that the token is bound to
	Audiences                      string // of the token, one a line
	Issued, Expires                time.Time
}

// Credential returns the one in use. It is zero for one that does not say when it ends: that of a
// program, or a token of another kind.
func (c *Client) Credential() Credential {
	config := c.connection.config.Load()
	if config == nil {
		return Credential{}
	}
	return credentialOf(config)
}

func credentialOf(config *rest.Config) Credential {
	if config.BearerToken != "" {
		return parseToken(config.BearerToken)
	}
	block, _ := pem.Decode(config.CertData)
	if block == nil {
		return Credential{}
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return Credential{}
	}
	return Credential{Issued: parsed.NotBefore, Expires: parsed.NotAfter}
}

// readSmall returns nothing for what is no kubeconfig's file.
func readSmall(file string) []byte {
	if plain(file) != nil {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return text
}

// parseToken reads a ServiceAccount's token (kubernetes, pkg/serviceaccount/claims.go), without
// looking at its signature.
func parseToken(token string) Credential {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return Credential{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	type object struct{ Name, UID string }
	var claims struct {
		Audiences  []string `json:"aud"`
		Issued     int64    `json:"iat"`
		Expires    int64    `json:"exp"`
		Kubernetes struct {
			Namespace      string
			Node           object
			ServiceAccount object
		} `json:"kubernetes.io"`
	}
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Expires == 0 {
		return Credential{}
	}
	k := claims.Kubernetes
	return Credential{
		Namespace: k.Namespace, Account: k.ServiceAccount.Name, AccountUID: k.ServiceAccount.UID, Node: k.Node.Name, NodeUID: k.Node.UID,
		Audiences: strings.Join(claims.Audiences, "\n"), Issued: time.Unix(claims.Issued, 0), Expires: time.Unix(claims.Expires, 0),
	}
}

// renewable reports whether the credential can get its own successor: a ServiceAccount's token,
// bound to a Node.
func (c Credential) renewable() bool {
	return c.Account != "" && c.Node != "" && c.NodeUID != "" && c.Expires.After(c.Issued)
}

// succeeds reports whether a credential is of the same identity as another, was not issued before
// it, and lasts longer. Where the other is the newer one, an administrator put it there: the server
// may not accept the older one any more.
func (c Credential) succeeds(other Credential) bool {
	was, is := other, c
	was.Issued, was.Expires, was.Audiences, is.Issued, is.Expires, is.Audiences = time.Time{}, time.Time{}, "", time.Time{}, time.Time{}, ""
	return c.renewable() && is == was && !c.Issued.Before(other.Issued) && c.Expires.After(other.Expires)
}
