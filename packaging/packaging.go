// Package packaging holds the files that are installed beside the program or printed by it.
//
// It does not install anything and contacts nothing.
package packaging

import (
	_ "embed"
	"strings"
)

// Config is the example of /etc/hostpath-provisioner/config.toml, with every key explained.
//
//go:embed config.toml
var Config string

//go:embed manifests.yaml
var manifests string

// Options are what differs between clusters.
type Options struct {
	Namespace   string // of the ServiceAccount; a DNS label, which the caller has checked
	Provisioner string // of the StorageClasses
	// TokenSecret asks for a token that does not expire, kept in a Secret. Without it each node gets
	// one that is bound to its Node object and ends with it, or after a year.
	TokenSecret bool
}

const boundToken = `#   TOKEN=$(kubectl create token hostpath-provisioner -n NAMESPACE --duration=8760h \
#     --bound-object-kind=Node --bound-object-name="$NODE")`

const secretToken = `#   TOKEN=$(kubectl get secret hostpath-provisioner -n NAMESPACE -o jsonpath='{.data.token}' | base64 -d)`

const namespaceObject = `---
apiVersion: v1
kind: Namespace
metadata:
  name: NAMESPACE`

const secretObject = `---
# The token controller writes the token into it.
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token
metadata:
  name: hostpath-provisioner
  namespace: NAMESPACE
  annotations:
    kubernetes.io/service-account.name: hostpath-provisioner`

// Manifests is the YAML that a cluster administrator applies, with instructions as comments.
func Manifests(o Options) string {
	token, secret, namespace := boundToken, "", namespaceObject
	if o.TokenSecret {
		token, secret = secretToken, secretObject
	}
	if o.Namespace == "default" || strings.HasPrefix(o.Namespace, "kube-") {
		namespace = "" // the cluster's own, there already
	}
	text := strings.NewReplacer("@TOKEN@", token, "@NAMESPACE_OBJECT@\n", line(namespace), "@SECRET_OBJECT@\n", line(secret)).Replace(manifests)
	return strings.NewReplacer("NAMESPACE", o.Namespace, "PROVISIONER", o.Provisioner).Replace(text)
}

func line(block string) string {
	if block == "" {
		return ""
	}
	return block + "\n"
}
