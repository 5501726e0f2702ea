package identity

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pages"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// found is the output of check --cluster --json, by check.
type found map[string]line

type line struct{ Check, Status, Reason, Message, Hint string }

// checks runs check --cluster on a node.
func (w *world) checks(d *rig.Daemon) found {
	w.Helper()
	cmd := d.Command("check", "--cluster", "--json")
	out, err := cmd.Output()
	if _, exit := err.(*exec.ExitError); err != nil && !exit {
		w.Fatal(err)
	}
	var all struct{ Cluster []line }
	if err := json.Unmarshal(out, &all); err != nil {
		w.Fatalf("%v\n%s", err, out)
	}
	is, bad := found{}, false
	for _, l := range all.Cluster {
		is[l.Check] = l
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
	last := ""
	defer func() { w.Log(check, "is", last) }()
	w.Eventually(fmt.Sprintf("%s is %q, with a hint", check, reason), func() bool {
		is := w.checks(d)[check]
		last = fmt.Sprintf("%+v", is)
		return is.Reason == reason && (reason == "") == (is.Status == "ok") && (reason == "" || is.Hint != "")
	})
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
	said := strings.NewReplacer(d.Path("etc"), "/etc/hostpath-provisioner",
		d.Path("state"), "/var/lib/hostpath-provisioner/state").Replace(w.enroll(d).Ends(0).Out)
	w.Must(pages.Open(rig.Root()).Sample(said, "install.md", "A kubeconfig by one command", 0))
	claim := cluster.Claim("default", "", "none", "1Mi")
	claim.GenerateName = "checked-"
	makes(w, w.admin.CoreV1().PersistentVolumeClaims("default"), claim)
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
			w := &world{&fixture.Environment{T: t, Cluster: w.Cluster, Ctx: w.Ctx}, w.admin, w.a}
			mend := one.breaks(w, d)
			w.until(d, one.check, one.reason)
			switch one.reason {
			case "PodsUnread":
				// Manifests without the right to read pods do for a node to be enrolled.
				w.enroll(d).Ends(0, "it may not read pods (manifests --no-pods)")
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
	out := fixture.Call(w.T, d, "check", "--cluster").Ends(1).Out
	said := strings.NewReplacer("/srv/fast of pool fast", "/srv/bulk of pool bulk", "host-of-", "").Replace(out)
	w.Must(pages.Open(rig.Root()).Sample(said, "security.md", "What is in force, told by the node", 0))
}

// TestCheckClusterWithoutPolicies: what the check says of a cluster that confines no identity, of
// tokens that last for ever, of the claim
// index, and of policies that are there on an API server without their plugin.
func TestCheckClusterWithoutPolicies(t *testing.T) {
	plugins := "ValidatingAdmissionPolicy"
	older := worldOn(t, plane.Get(t), time.Minute).older()
	if !older {
		plugins += ",MutatingAdmissionPolicy"
	}
	plane := fixture.OwnPlane(t, "--apiserver-flag=--disable-admission-plugins="+plugins)
	w := worldOn(t, plane, 3*time.Minute)
	w.Must(w.AddNode(w.Ctx, "node-a", map[string]string{corev1.LabelHostname: "node-a"}))
	d := w.enrolls("node-a")
	w.enroll(d).Ends(0)
	makes(w, w.admin.CoreV1().PersistentVolumeClaims("default"),
		cluster.Claim("default", "one", "none", "1Mi"))
	w.until(d, "policies", "NoPolicies")
	w.until(d, "parameters", "")
	for _, one := range []struct {
		check, reason string
		breaks        func(*world, *rig.Daemon) func()
	}{
		{"identity", "NotBound", withIdentity(account, "")},
		{"token", "CredentialEndless", withSecretToken},
		{"node", "HostnameMissing", patched(nodesAt+"node-a",
			`{"metadata":{"labels":{"kubernetes.io/hostname":null}}}`,
			`{"metadata":{"labels":{"kubernetes.io/hostname":"node-a"}}}`)},
		{"policies", "PoliciesNotEnforced", applied("--pool-path", "/srv/fast")},
		{"claim index", "IndexNotEnforced", applied("--claim-index")},
		{"claim index", "IndexDiffers", patched(mutatingAt+"hostpath-provisioner-claims",
			`{"spec":{"failurePolicy":"Fail"}}`, `{}`)},
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
	{"API", "ServerUnreachable", withLine("server:", "server: https://127.0.0.1:1")},
	{"API", "ServerNotTrusted", withLine("certificate-authority-data:",
		"certificate-authority-data: "+anotherAuthority())},
	{"API", "CredentialRefused", withLine("tokenFile:", "token: rubbish")},
	{"identity", "CredentialIgnored", withLine("tokenFile:", "username: a\n    password: b")},
	{"identity", "BoundToOtherNode", configuredAs("node-a", "node-b")},
	{"node", "NodeMissing", configuredAs("node-a", "node-none")},
	{"identity", "NotBound", withIdentity(account, "")},
	{"identity", "OtherIdentity", withIdentity("default", "node-a")},
	{"rights", "RightsMissing", without("storageclasses")},
	{"rights", "PodsUnread", without("pods")},
	{"rights", "TooManyRights", mayReadSecrets},
	{"policies", "PoliciesReadConfigMap", patched(policiesAt+eventsPolicy,
		`{"spec":{"paramKind":{"apiVersion":"v1","kind":"ConfigMap"}}}`, `{"spec":{"paramKind":null}}`)},
	{"policies", "PoliciesMissing", withoutPolicy},
	{"policies", "PoliciesUnbound", patched(bindingsAt+eventsPolicy,
		`{"spec":{"validationActions":["Audit"]}}`, `{"spec":{"validationActions":["Deny"]}}`)},
	{"policies", "PoliciesDiffer", patched(policiesAt+eventsPolicy,
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
	{"claim index", "VolumesUnlabelled", patched(mutatingAt+"hostpath-provisioner-volumes",
		`{"spec":{"failurePolicy":"Fail"}}`, `{"spec":{"failurePolicy":"Ignore"}}`)},
}

// withKubeconfig changes the node's kubeconfig.
func withKubeconfig(change func(string) string) func(*world, *rig.Daemon) func() {
	return func(w *world, d *rig.Daemon) func() {
		w.Helper()
		file := d.Path("etc", "kubeconfig")
		text := hosttest.Need(os.ReadFile(file))(w)
		w.Must(os.WriteFile(file, []byte(change(string(text))), 0o600))
		return func() { w.Must(os.WriteFile(file, text, 0o600)) }
	}
}

// withLine has another text in the place of a key of the node's kubeconfig and its value.
func withLine(key, now string) func(*world, *rig.Daemon) func() {
	line := regexp.MustCompile(key + ".*")
	return withKubeconfig(func(s string) string { return line.ReplaceAllLiteralString(s, now) })
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
		w.Must(d.Configure(strings.Replace(string(text), node, other, 1)))
		return func() { w.Must(d.Configure(string(text))) }
	}
}

// withIdentity gives the node another ServiceAccount's token, or one that is bound to another node.
// The renewed one is put aside.
func withIdentity(name, node string) func(*world, *rig.Daemon) func() {
	return func(w *world, d *rig.Daemon) func() {
		w.Helper()
		mend := withKubeconfig(func(s string) string { return s })(w, d)
		w.Must(w.ServiceAccountKubeconfig(w.Ctx, map[bool]string{true: account,
			false: "default"}[name == account], name, node, d.Path("etc", "kubeconfig")))
		return mend
	}
}

// without takes a resource out of the daemons' ClusterRole.
func without(resource string) func(*world, *rig.Daemon) func() {
	return func(w *world, _ *rig.Daemon) func() {
		w.Helper()
		roles := w.admin.RbacV1().ClusterRoles()
		role := hosttest.Need(roles.Get(w.Ctx, "hostpath-provisioner:hostpath-provisioner",
			metav1.GetOptions{}))(w)
		less := role.DeepCopy()
		less.Rules = slices.DeleteFunc(less.Rules,
			func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, resource) })
		less = hosttest.Need(roles.Update(w.Ctx, less, metav1.UpdateOptions{}))(w)
		return func() {
			role.ResourceVersion = less.ResourceVersion
			hosttest.Need(roles.Update(w.Ctx, role, metav1.UpdateOptions{}))(w)
		}
	}
}

// mayReadSecrets gives the daemons a role of an administrator's own.
func mayReadSecrets(w *world, _ *rig.Daemon) func() {
	w.Helper()
	roles, bindings := w.admin.RbacV1().ClusterRoles(), w.admin.RbacV1().ClusterRoleBindings()
	meta := metav1.ObjectMeta{Name: "too-much"}
	makes(w, roles, &rbacv1.ClusterRole{ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"},
			Verbs: []string{"get"}}}})
	makes(w, bindings, &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account,
			Name: account}}})
	return func() {
		w.Must(bindings.Delete(w.Ctx, meta.Name, metav1.DeleteOptions{}))
		w.Must(roles.Delete(w.Ctx, meta.Name, metav1.DeleteOptions{}))
	}
}

const eventsPolicy = "events.hostpath-provisioner.hostpath-provisioner"

func withoutPolicy(w *world, _ *rig.Daemon) func() {
	w.Helper()
	policies := w.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	policy := hosttest.Need(policies.Get(w.Ctx, eventsPolicy, metav1.GetOptions{}))(w)
	w.Must(policies.Delete(w.Ctx, eventsPolicy, metav1.DeleteOptions{}))
	return func() {
		policy.ObjectMeta = metav1.ObjectMeta{Name: eventsPolicy}
		makes(w, policies, policy)
	}
}

// patched changes what is at a path, and changes it back.
func patched(path, breaks, mends string) func(*world, *rig.Daemon) func() {
	return func(w *world, _ *rig.Daemon) func() {
		w.Helper()
		w.Must(w.patch(w.admin, path, breaks))
		return func() { w.Must(w.patch(w.admin, path, mends)) }
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
	makes(w, classes, cluster.StorageClass("odd", account, storagev1.VolumeBindingImmediate))
	return func() { w.Must(classes.Delete(w.Ctx, "odd", metav1.DeleteOptions{})) }
}

// withSecretToken gives the node a token that never ends.
func withSecretToken(w *world, d *rig.Daemon) func() {
	w.Helper()
	applied("--token-secret")(w, d)
	secret := hosttest.Need(cluster.WaitFor(w.Ctx, w.admin.CoreV1().Secrets(account), account,
		func(s *corev1.Secret) bool { return len(s.Data["token"]) > 0 }))(w)
	return withLine("tokenFile:", "token: "+string(secret.Data["token"]))(w, d)
}

// applied applies the manifests with these flags, and leaves them.
func applied(flags ...string) func(*world, *rig.Daemon) func() {
	return func(w *world, _ *rig.Daemon) func() { w.Helper(); w.apply(flags...); return func() {} }
}

func withoutIndexBinding(w *world, _ *rig.Daemon) func() {
	w.Helper()
	w.Must(w.delete(w.admin, admissionAt+"mutatingadmissionpolicybindings/hostpath-provisioner-claims"))
	return func() {}
}
