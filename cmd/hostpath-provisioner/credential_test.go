package main

import (
	"fmt"
	"strings"
	"testing"
)

// A command that is called by hand uses the kubeconfig that the daemon has from systemd: that of the
// running one, and else where the next one's comes from. A flag goes before both.
func TestCredentialOfTheDaemon(t *testing.T) {
	kubeconfig := func(port int) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Config\n"+
			"clusters: [{name: c, cluster: {server: \"http://127.0.0.1:%d\"}}]\n"+
			"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n", port)
	}
	h := newHost(t, strings.Replace(plain, "BASE/kubeconfig", "BASE/nowhere", 1))
	h.call("prepare", "fast")
	asks := func(what string, args ...string) {
		t.Helper()
		for _, command := range [][]string{{"volumes"}, {"check", "--cluster"}} {
			if out := h.call(append(command, args...)...); !strings.Contains(out, what) {
				t.Errorf("%q does not ask %s:\n%s", command, what, out)
			}
		}
	}
	asks("/nowhere")
	h.write("etc/credstore/hostpath-provisioner.kubeconfig", kubeconfig(2))
	asks("127.0.0.1:2")
	h.write("run/credentials/hostpath-provisioner.service/kubeconfig", kubeconfig(1))
	asks("127.0.0.1:1")
	h.write("by-flag", kubeconfig(3))
	asks("127.0.0.1:3", "--kubeconfig", h.path("by-flag"))
}

// What a filter of system calls refuses to tell is not said to be absent.
func TestLandlockThatCannotBeAsked(t *testing.T) {
	none, old, some := 0, 2, 7
	for want, abi := range map[string]*int{
		"is not known: this process's filter": nil, "is not available on this kernel": &none,
		"(ABI 2); before ABI 6": &old, "available (ABI 7)": &some,
	} {
		if got := landlockOf(abi); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
