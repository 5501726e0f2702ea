package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// sh runs a line of shell in a directory that is home and has programs of the test, with kubectl,
// and returns all that it printed.
func (w *environment) sh(dir, kubeconfig, line string) (string, error) {
	cmd := exec.CommandContext(w.Ctx, "sh", "-c", line)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + dir + ":" + filepath.Join(rig.Root(), ".build") + ":" + os.Getenv("PATH"),
		"HOME=" + dir, "KUBECONFIG=" + kubeconfig,
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// says runs a line with kubectl in it, as an administrator does.
func (w *environment) says(line string) (string, error) {
	return w.sh(hosttest.Dir(w), w.Kubeconfig(), line)
}

// kubectl is a line that has to succeed.
func (w *environment) kubectl(line string) {
	w.Helper()
	if out, err := w.says(line); err != nil {
		w.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// The API server takes what the manifests have, with each option, without an error and without a
// warning. What an older one lacks is left out where its version is given, and refused by it
// otherwise.
func TestManifestsApply(t *testing.T) {
	w := newEnvironment(t)
	version := need(w.Client().Discovery().ServerVersion())(w)
	namespace := w.Namespace + "-manifests" // as one that kubectl made before
	w.kubectl("kubectl create --save-config namespace " + namespace)
	t.Cleanup(func() { w.kubectl("kubectl delete --wait=false namespace " + namespace) })
	apply := func(options string) (string, error) {
		return w.says(rig.Binary() + " manifests --provisioner " + w.Provisioner +
			" --namespace " + namespace + " " + options + " | kubectl apply --dry-run=server -f -")
	}
	const confined = "--pool-path '/srv/*' --shared-pool-path /shared --every-node-pool-path /every"
	of := "--kubernetes-version " + version.GitVersion + " "
	for _, options := range []string{
		"", confined, of, of + confined, of + "--claim-index", of + "--claim-index " + confined,
		"--inline-volumes", "--token-secret", "--no-pods --no-classes",
	} {
		out, err := apply(options)
		left := strings.Contains(out, "--claim-index is left out: Kubernetes "+version.GitVersion)
		if err != nil || strings.Contains(strings.ToLower(out), "error") ||
			strings.Contains(out, "Warning") || !strings.Contains(out, "serviceaccount/hostpath-provisioner created (server dry run)") {
			t.Errorf("%s: %v\n%s", options, err, out)
		}
		asked := strings.Contains(options, "--claim-index")
		if older := w.Older(cluster.MutatingPolicies); left != (asked && older) ||
			strings.Contains(out, "mutatingadmissionpolicy") != (asked && !older) {
			t.Errorf("%s: the claim index is left out: %t\n%s", options, left, out)
		}
	}
	if out, err := apply("--claim-index"); w.Older(cluster.MutatingPolicies) == (err == nil) {
		t.Errorf("--claim-index: %v\n%s", err, out)
	}
}
