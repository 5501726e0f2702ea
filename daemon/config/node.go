package config

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// HostNodeName is the name that kubelet gives this host's Node when nothing overrides it: the
// host's name as the kernel has it, trimmed and in lower case
// (k8s.io/kubernetes/pkg/util/node.GetHostname).
func HostNodeName() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("the host's name: %w", err)
	}
	name := strings.ToLower(strings.TrimSpace(host))
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", fmt.Errorf("the host's name %q cannot be a node's name", host)
	}
	return name, nil
}
