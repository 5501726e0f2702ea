package leadership

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Identity is this daemon as the holder of leases: the node, and this host's run since its kernel
// started (/proc/sys/kernel/random/boot_id). A daemon that starts again takes over from itself at
// once: pools are locked on their host (state.LockPool), so that the daemon before is gone. Another
// host that was given the same node's name by mistake is another holder.
func Identity(node string) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(boot) < 8 {
		boot = []byte(rand.Text())
	}
	return node + "_" + string(boot[:8])
}

// NodeOf is the node in an identity, "" in what is none: a program that may write leases may write
// anything there.
func NodeOf(identity string) string {
	node := identity[:max(0, strings.LastIndexByte(identity, '_'))]
	if len(validation.IsDNS1123Subdomain(node)) > 0 {
		return ""
	}
	return node
}

// HostID is the identity in eight letters and digits, for names of files.
func HostID(node string) string {
	sum := sha256.Sum256([]byte(Identity(node)))
	return hex.EncodeToString(sum[:4])
}
