package identity

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pages"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// found is the output of check --cluster --json, by check.
type found map[string]struct{ Status, Reason, Message, Hint string }

// checks runs check --cluster on a node.
func (w *world) checks(d *rig.Daemon) found {
	w.Helper()
	cmd := d.Command("check", "--cluster", "--json")
	out, err := cmd.Output()
	if _, exit := err.(*exec.ExitError); err != nil && !exit {
		w.Fatal(err)
	}
	var all struct {
		Cluster []struct{ Check, Status, Reason, Message, Hint string }
	}
	if err := json.Unmarshal(out, &all); err != nil {
		w.Fatalf("%v\n%s", err, out)
	}
	is, bad := found{}, false
	for _, l := range all.Cluster {
		is[l.Check] = struct{ Status, Reason, Message, Hint string }{l.Status, l.Reason, l.Message,
			l.Hint}
		bad = bad || l.Status == "wrong" || l.Status == "unknown"
	}
	if bad != (err != nil) {
		w.Errorf("exit code %v with\n%s", err, out)
	}
	return is
}

// until repeats a check until a line has a reason: the API server takes up what was changed some
// time later.
func (w *world) until(d *rig.Daemon, check, reason string) {
	w.Helper()
	for {
		is := w.checks(d)
		if is[check].Reason == reason && (reason == "") == (is[check].Status == "ok") {
			if reason != "" && is[check].Hint == "" {
				w.Errorf("%s has no hint", reason)
			}
			return
		}
		if w.ctx.Err() != nil {
			w.Fatalf("%s is %+v, want %q", check, is[check], reason)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// well waits until each check is.
func (w *world) well(d *rig.Daemon) {
	w.Helper()
	for check := range w.checks(d) {
		w.until(d, check, "")
	}
}

// TestCheckCluster breaks each protection on a real API server, one after the other: the line of
// the check says so, and all are
// well again in the end.
func TestCheckCluster(t *testing.T) {
	w := newWorld(t)
	d := w.enrolls("node-a")
	out, code := d.Call("enroll", "--admin-kubeconfig", w.Kubeconfig())
	said := strings.NewReplacer(d.Path("etc"), "/etc/hostpath-provisioner",
		d.Path("state"), "/var/lib/hostpath-provisioner/state").Replace(out)
	err := pages.Open(rig.Root()).Sample(said, "install.md", "A kubeconfig by one command", 0)
	if code != 0 || err != nil {
		t.Fatalf("exit code %d: %v", code, err)
	}
	claim := cluster.Claim("default", "", "none", "1Mi")
	claim.GenerateName = "checked-"
	_, err = w.admin.CoreV1().PersistentVolumeClaims("default").Create(w.ctx, claim,
		metav1.CreateOptions{})
	w.must(err)
	w.well(d)
	index := "the API server labels claims"
	if w.older() {
		index = "the API server has no MutatingAdmissionPolicy"
	}
	if says := w.checks(d)["claim index"].Message; !strings.Contains(says, index) {
		t.Errorf("of the claim index: %s", says)
	}
	for _, one := range breakages {
		if one.check == "claim index" && w.older() {
			continue
		}
		t.Run(one.reason, func(t *testing.T) {
			w := &world{t, w.Cluster, w.ctx, w.admin, w.a}
			mend := one.breaks(w, d)
			w.until(d, one.check, one.reason)
			switch one.reason {
			case "PodsUnread":
				w.enrollsWithoutPods(d)
			case "PoolNotListed":
				if !w.older() {
					w.shows(d)
				}
			}
			mend()
		})
	}
	w.well(d)
}

// shows: security.md has what the check says of a pool that is not listed.
func (w *world) shows(d *rig.Daemon) {
	w.Helper()
	out, code := d.Call("check", "--cluster")
	said := strings.NewReplacer("/srv/fast of pool fast", "/srv/bulk of pool bulk", "host-of-", "").Replace(out)
	err := pages.Open(rig.Root()).Sample(said, "security.md", "What is in force, told by the node", 0)
	if code != 1 || err != nil {
		w.Errorf("exit code %d: %v", code, err)
	}
}

// enrollsWithoutPods: manifests without the right to read pods do for a node to be enrolled.
func (w *world) enrollsWithoutPods(d *rig.Daemon) {
	w.Helper()
	out, code := d.Call("enroll", "--admin-kubeconfig", w.Kubeconfig())
	if code != 0 || !strings.Contains(out, "it may not read pods (manifests --no-pods)") {
		w.Errorf("enroll: exit code %d\n%s", code, out)
	}
}

// TestCheckClusterWithoutPolicies: what the check says of a cluster that confines no identity, of
// tokens that last for ever, of the claim
// index, and of policies that are there on an API server without their plugin.
func TestCheckClusterWithoutPolicies(t *testing.T) {
	plugins := "ValidatingAdmissionPolicy"
	w := &world{T: t, Cluster: plane.Get(t)}
	older := w.older()
	if !older {
		plugins += ",MutatingAdmissionPolicy"
	}
	plane := fixture.OwnPlane(t, "--apiserver-flag=--disable-admission-plugins="+plugins)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	w = &world{T: t, Cluster: plane, ctx: ctx, admin: plane.Client()}
	w.must(w.AddNode(ctx, "node-a", map[string]string{corev1.LabelHostname: "node-a"}))
	d := w.enrolls("node-a")
	if out, code := d.Call("enroll", "--admin-kubeconfig", w.Kubeconfig()); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	_, err := w.admin.CoreV1().PersistentVolumeClaims("default").Create(ctx,
		cluster.Claim("default", "one", "none", "1Mi"), metav1.CreateOptions{})
	w.must(err)
	w.until(d, "policies", "NoPolicies")
	w.until(d, "parameters", "")
	for _, one := range []struct {
		check, reason string
		breaks        func(*world, *rig.Daemon) func()
	}{
		{"identity", "NotBound", withIdentity(account, "")},
		{"token", "CredentialEndless", withSecretToken},
		{"node", "HostnameMissing", withoutHostname},
		{"policies", "PoliciesNotEnforced", applied("--pool-path", "/srv/fast")},
		{"claim index", "IndexNotEnforced", applied("--claim-index")},
		{"claim index", "IndexDiffers", withOtherIndex},
		{"claim index", "IndexUnbound", withoutIndexBinding},
	} {
		if one.check == "claim index" && older {
			continue
		}
		mend := one.breaks(w, d)
		w.until(d, one.check, one.reason)
		mend()
	}
}

// breakages are what is done to a cluster or a node, and undone.
var breakages = []struct {
	check, reason string
	breaks        func(w *world, d *rig.Daemon) (mend func())
}{
	{"API", "KubeconfigUnusable", withKubeconfig(func(string) string { return "rubbish" })},
	{"API", "ServerUnreachable", withKubeconfig(func(s string) string {
		return replaceLine(s,
			"server:", "https://127.0.0.1:1")
	})},
	{"API", "ServerNotTrusted", withKubeconfig(func(s string) string {
		return replaceLine(s,
			"certificate-authority-data:", anotherAuthority())
	})},
	{"API", "CredentialRefused", withKubeconfig(func(s string) string {
		return strings.Replace(replaceLine(s, "tokenFile:", "rubbish"), "tokenFile:", "token:", 1)
	})},
	{"identity", "CredentialIgnored", withKubeconfig(func(s string) string {
		return strings.Replace(replaceLine(s, "tokenFile:", "none"), "tokenFile: none", "username: a\n    password: b", 1)
	})},
	{"identity", "BoundToOtherNode", configuredAs("node-a", "node-b")},
	{"node", "NodeMissing", configuredAs("node-a", "node-none")},
	{"identity", "NotBound", withIdentity(account, "")},
	{"identity", "OtherIdentity", withIdentity("default", "node-a")},
	{"rights", "RightsMissing", without("storageclasses")},
	{"rights", "PodsUnread", without("pods")},
	{"rights", "TooManyRights", mayReadSecrets},
	{"policies", "PoliciesReadConfigMap", patched("validatingadmissionpolicies",
		`{"spec":{"paramKind":{"apiVersion":"v1","kind":"ConfigMap"}}}`, `{"spec":{"paramKind":null}}`)},
	{"policies", "PoliciesMissing", withoutPolicy},
	{"policies", "PoliciesUnbound", patched("validatingadmissionpolicybindings",
		`{"spec":{"validationActions":["Audit"]}}`, `{"spec":{"validationActions":["Deny"]}}`)},
	{"policies", "PoliciesDiffer", patched("validatingadmissionpolicies",
		`{"spec":{"failurePolicy":"Ignore"}}`, `{"spec":{"failurePolicy":"Fail"}}`)},
	{"policies", "PoliciesUnreadable", without("validatingadmissionpolicies")},
	{"parameters", "ProvisionerNotListed", relisted("--provisioner", "other", "--no-classes",
		"--pool-path", "/srv/fast")},
	{"parameters", "PoolNotListed", relisted("--pool-path", "/srv/other", "--pool-path",
		"/srv/fast/*")},
	{"parameters", "HostnameNotListed", relisted("--pool-path", "/srv/fast", "--hostname",
		"node-a=other")},
	{"parameters", "ClassNotListed", withOddClass},
	{"parameters", "AudienceNotListed", relisted(append([]string{"--audience", "vault"},
		lists...)...)},
	{"claim index", "VolumesUnlabelled", withOtherVolumeIndex},
}

// withKubeconfig changes the node's kubeconfig.
func withKubeconfig(change func(string) string) func(*world, *rig.Daemon) func() {
	return func(w *world, d *rig.Daemon) func() {
		w.Helper()
		file := d.Path("etc", "kubeconfig")
		text := hosttest.Need(os.ReadFile(file))(w)
		w.must(os.WriteFile(file, []byte(change(string(text))), 0o600))
		return func() { w.must(os.WriteFile(file, text, 0o600)) }
	}
}

// replaceLine gives a key of a YAML text another value.
func replaceLine(text, key, value string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if before, _, found := strings.Cut(line, key); found {
			line = before + key + " " + value + "\n"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

// anotherAuthority is a certificate that signed nothing of the cluster's.
func anotherAuthority() string {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: server.Certificate().Raw}))
}

func configuredAs(node, other string) func(*world, *rig.Daemon) func() {
	return func(w *world, d *rig.Daemon) func() {
		w.Helper()
		text := hosttest.Need(os.ReadFile(d.Path("etc", "config.toml")))(w)
		w.must(d.Configure(strings.Replace(string(text), node, other, 1)))
		return func() { w.must(d.Configure(string(text))) }
	}
}

// withIdentity gives the node another ServiceAccount's token, or one that is bound to another node.
// The renewed one is put aside.
func withIdentity(name, node string) func(*world, *rig.Daemon) func() {
	return func(w *world, d *rig.Daemon) func() {
		w.Helper()
		mend := withKubeconfig(func(s string) string { return s })(w, d)
		w.must(w.ServiceAccountKubeconfig(w.ctx, map[bool]string{true: account,
			false: "default"}[name == account], name, node, d.Path("etc", "kubeconfig")))
		return mend
	}
}

// without takes a resource out of the daemons' ClusterRole.
func without(resource string) func(*world, *rig.Daemon) func() {
	return func(w *world, _ *rig.Daemon) func() {
		w.Helper()
		roles := w.admin.RbacV1().ClusterRoles()
		role, err := roles.Get(w.ctx, "hostpath-provisioner:hostpath-provisioner",
			metav1.GetOptions{})
		w.must(err)
		less := role.DeepCopy()
		less.Rules = slices.DeleteFunc(less.Rules,
			func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, resource) })
		less = hosttest.Need(roles.Update(w.ctx, less, metav1.UpdateOptions{}))(w)
		return func() {
			role.ResourceVersion = less.ResourceVersion
			hosttest.Need(roles.Update(w.ctx, role, metav1.UpdateOptions{}))(w)
		}
	}
}

// mayReadSecrets gives the daemons a role of an administrator's own.
func mayReadSecrets(w *world, _ *rig.Daemon) func() {
	w.Helper()
	roles, bindings := w.admin.RbacV1().ClusterRoles(), w.admin.RbacV1().ClusterRoleBindings()
	meta := metav1.ObjectMeta{Name: "too-much"}
	_, err := roles.Create(w.ctx, &rbacv1.ClusterRole{ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"},
			Verbs: []string{"get"}}}}, metav1.CreateOptions{})
	w.must(err)
	_, err = bindings.Create(w.ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account,
			Name: account}}}, metav1.CreateOptions{})
	w.must(err)
	return func() {
		w.must(bindings.Delete(w.ctx, meta.Name, metav1.DeleteOptions{}))
		w.must(roles.Delete(w.ctx, meta.Name, metav1.DeleteOptions{}))
	}
}

const eventsPolicy = "events.hostpath-provisioner.hostpath-provisioner"

func withoutPolicy(w *world, _ *rig.Daemon) func() {
	w.Helper()
	policies := w.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	policy := hosttest.Need(policies.Get(w.ctx, eventsPolicy, metav1.GetOptions{}))(w)
	w.must(policies.Delete(w.ctx, eventsPolicy, metav1.DeleteOptions{}))
	return func() {
		policy.ObjectMeta = metav1.ObjectMeta{Name: eventsPolicy}
		hosttest.Need(policies.Create(w.ctx, policy, metav1.CreateOptions{}))(w)
	}
}

// patched changes the policy of events, or its binding.
func patched(resource, breaks, mends string) func(*world, *rig.Daemon) func() {
	return func(w *world, _ *rig.Daemon) func() {
		w.Helper()
		patch := func(text string) {
			path := fmt.Sprintf("/apis/admissionregistration.k8s.io/v1/%s/%s", resource,
				eventsPolicy)
			w.must(w.admin.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(path).Body([]byte(text)).Do(w.ctx).Error())
		}
		patch(breaks)
		return func() { patch(mends) }
	}
}

// relisted applies the policies with other lists.
func relisted(flags ...string) func(*world, *rig.Daemon) func() {
	return func(w *world, _ *rig.Daemon) func() {
		w.Helper()
		w.apply(flags...)
		return func() { w.apply(lists...) }
	}
}

// withOddClass makes a class that neither is listed nor has the provisioner's name.
func withOddClass(w *world, _ *rig.Daemon) func() {
	w.Helper()
	classes := w.admin.StorageV1().StorageClasses()
	_, err := classes.Create(w.ctx,
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "odd"},
			Provisioner: account}, metav1.CreateOptions{})
	w.must(err)
	return func() { w.must(classes.Delete(w.ctx, "odd", metav1.DeleteOptions{})) }
}

// withSecretToken gives the node a token that never ends.
func withSecretToken(w *world, d *rig.Daemon) func() {
	w.Helper()
	applied("--token-secret")(w, d)
	secret, err := cluster.WaitFor(w.ctx, w.admin.CoreV1().Secrets(account), account,
		func(s *corev1.Secret) bool { return len(s.Data["token"]) > 0 })
	w.must(err)
	return withKubeconfig(func(s string) string {
		return strings.Replace(replaceLine(s, "tokenFile:", string(secret.Data["token"])),
			"tokenFile:", "token:", 1)
	})(w, d)
}

func withoutHostname(w *world, _ *rig.Daemon) func() {
	w.Helper()
	set := func(value string) {
		_, err := w.admin.CoreV1().Nodes().Patch(w.ctx, "node-a", types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"kubernetes.io/hostname":`+value+`}}}`), metav1.PatchOptions{})
		w.must(err)
	}
	set("null")
	return func() { set(`"node-a"`) }
}

// applied applies the manifests with these flags, and leaves them.
func applied(flags ...string) func(*world, *rig.Daemon) func() {
	return func(w *world, _ *rig.Daemon) func() { w.Helper(); w.apply(flags...); return func() {} }
}

func withOtherIndex(w *world, _ *rig.Daemon) func() {
	w.Helper()
	_, err := w.admin.AdmissionregistrationV1().MutatingAdmissionPolicies().Patch(w.ctx,
		"hostpath-provisioner-claims", types.MergePatchType, []byte(`{"spec":{"failurePolicy":"Fail"}}`), metav1.PatchOptions{})
	w.must(err)
	return func() {}
}

func withOtherVolumeIndex(w *world, _ *rig.Daemon) func() {
	w.Helper()
	patch := func(failurePolicy string) {
		_, err := w.admin.AdmissionregistrationV1().MutatingAdmissionPolicies().Patch(w.ctx,
			"hostpath-provisioner-volumes", types.MergePatchType, []byte(`{"spec":{"failurePolicy":"`+failurePolicy+`"}}`), metav1.PatchOptions{})
		w.must(err)
	}
	patch("Fail")
	return func() { patch("Ignore") }
}

func withoutIndexBinding(w *world, _ *rig.Daemon) func() {
	w.Helper()
	w.must(w.admin.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Delete(w.ctx,
		"hostpath-provisioner-claims", metav1.DeleteOptions{}))
	return func() {}
}
