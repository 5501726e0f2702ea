package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	provisioner  = "example.test/nobody"
	selectedNode = "volume.kubernetes.io/selected-node"
	provisionKey = "volume.kubernetes.io/storage-provisioner"
)

// TestCluster is one story: what a provisioner would see, and what must
// outlive the control plane's death.
func TestCluster(t *testing.T) {
	ctx := t.Context()
	c := startForTest(t)
	pid := c.PID()

	if err := c.AddNode(ctx, "node-a", map[string]string{corev1.LabelHostname: "other-name"}); err != nil {
		t.Fatal(err)
	}
	namespace, claim := waitingClaim(t, c)
	t.Run("the scheduler selects a node", func(t *testing.T) {
		if got := claim.Annotations[selectedNode]; got != "node-a" {
			t.Errorf("selected-node is %q, want the node's name node-a", got)
		}
		if got := claim.Annotations[provisionKey]; got != provisioner {
			t.Errorf("storage-provisioner is %q, want %q", got, provisioner)
		}
		if _, err := c.WaitEvent(ctx, claim, "ExternalProvisioning"); err != nil {
			t.Error(err)
		}
	})
	t.Run("a volume is bound and the pod gets its node", func(t *testing.T) { bindByHand(t, c, claim) })
	t.Run("a wait that fails shows the object and its events", func(t *testing.T) { waitInVain(t, c, claim) })
	t.Run("a token says on which node it is", func(t *testing.T) { boundToken(t, c) })
	t.Run("a node's certificate is a kubelet's", func(t *testing.T) { nodeCertificate(t, c) })
	t.Run("a manifest is applied strictly", func(t *testing.T) { manifests(t, c) })

	host := c.Config().Host
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
		t.Error("the API server responds after Kill")
	}
	if err := c.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	t.Run("a killed control plane comes back with everything", func(t *testing.T) {
		again, err := c.WaitClaimBound(ctx, namespace, claim.Name)
		if err != nil {
			t.Fatal(err)
		}
		if again.UID != claim.UID {
			t.Errorf("the claim's UID is %s, was %s", again.UID, claim.UID)
		}
		if c.Config().Host != host {
			t.Errorf("the address is %s, was %s", c.Config().Host, host)
		}
	})
	t.Run("things go away", func(t *testing.T) { deleteAll(t, c, namespace, claim) })

	pids := []int{pid, c.PID()}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d: %v, want none", pid, err)
		}
	}
}

func startForTest(t *testing.T) *Cluster {
	t.Helper()
	begin := time.Now()
	c, err := Start(t.Context(), Options{Dir: t.TempDir(), Stdout: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("usable after %.1fs", time.Since(begin).Seconds())
	t.Cleanup(func() {
		if err := c.Kill(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// waitingClaim makes a class, a claim and a pod, and returns the claim when
// its provisioner would begin.
func waitingClaim(t *testing.T, c *Cluster) (namespace string, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	ctx := t.Context()
	namespace, err := c.NewNamespace(ctx, "cluster")
	if err != nil {
		t.Fatal(err)
	}
	class := StorageClass("nobody", provisioner, storagev1.VolumeBindingWaitForFirstConsumer)
	if _, err := c.Client().StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claim = Claim(namespace, "data", class.Name, "1Gi")
	if _, err := c.Client().CoreV1().PersistentVolumeClaims(namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := Pod(namespace, "consumer", claim.Name)
	if _, err := c.Client().CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	claim, err = c.WaitClaim(ctx, namespace, claim.Name, func(claim *corev1.PersistentVolumeClaim) bool {
		return claim.Annotations[selectedNode] != "" && claim.Annotations[provisionKey] != ""
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("selected-node after %v", time.Since(begin).Round(time.Millisecond))
	return namespace, claim
}

// bindByHand is the provisioner's part. The annotation provisioned-by keeps
// kube-controller-manager from deleting the path by itself later.
func bindByHand(t *testing.T, c *Cluster, claim *corev1.PersistentVolumeClaim) {
	ctx := t.Context()
	directory := corev1.HostPathDirectory
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "pvc-" + string(claim.UID),
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      claim.Spec.Resources.Requests,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName:              *claim.Spec.StorageClassName,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/nonexistent/data", Type: &directory},
			},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
		},
	}
	if _, err := c.Client().CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WaitClaimBound(ctx, claim.Namespace, claim.Name); err != nil {
		t.Error(err)
	}
	if _, err := c.WaitVolumePhase(ctx, volume.Name, corev1.VolumeBound); err != nil {
		t.Error(err)
	}
	if pod, err := c.WaitPodScheduled(ctx, claim.Namespace, "consumer"); err != nil {
		t.Error(err)
	} else if pod.Spec.NodeName != "node-a" {
		t.Errorf("the pod is on %q, want node-a", pod.Spec.NodeName)
	}
}

func waitInVain(t *testing.T, c *Cluster, claim *corev1.PersistentVolumeClaim) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := c.WaitClaim(ctx, claim.Namespace, claim.Name, func(*corev1.PersistentVolumeClaim) bool { cancel(); return false })
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{claim.Name, "phase: Bound", "ExternalProvisioning"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not have %q:\n%v", want, err)
		}
	}
	_, err = c.WaitClaim(ctx, claim.Namespace, "nothing", func(*corev1.PersistentVolumeClaim) bool { return true })
	if err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("wait for a claim that does not exist: %v", err)
	}
}

func boundToken(t *testing.T, c *Cluster) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := c.ServiceAccountKubeconfig(t.Context(), "default", "default", "node-a", path); err != nil {
		t.Fatal(err)
	}
	user := whoami(t, path)
	if user.Username != "system:serviceaccount:default:default" {
		t.Errorf("user %q", user.Username)
	}
	if got := user.Extra["authentication.kubernetes.io/node-name"]; len(got) != 1 || got[0] != "node-a" {
		t.Errorf("node-name %q, want node-a", got)
	}
	// RBAC is on: nothing was granted to it.
	_, err := clientFor(t, path).CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("list volumes: %v, want forbidden", err)
	}
}

func nodeCertificate(t *testing.T, c *Cluster) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := c.NodeKubeconfig(t.Context(), "node-k", path); err != nil {
		t.Fatal(err)
	}
	if user := whoami(t, path); user.Username != "system:node:node-k" {
		t.Errorf("user %q", user.Username)
	}
	// A kubelet may join as itself and as no other, and it may not make
	// volumes: the daemon needs an identity of its own.
	client := clientFor(t, path).CoreV1()
	for name, allowed := range map[string]bool{"node-k": true, "node-l": false} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := client.Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		if allowed && err != nil || !allowed && !apierrors.IsForbidden(err) {
			t.Errorf("create node %q: %v", name, err)
		}
	}
	_, err := client.PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("create a volume: %v, want forbidden", err)
	}
}

func clientFor(t *testing.T, path string) kubernetes.Interface {
	t.Helper()
	if info, err := os.Stat(path); err != nil {
		t.Fatal(err)
	} else if info.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %v, want 0600", path, info.Mode().Perm())
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	return kubernetes.NewForConfigOrDie(config)
}

func whoami(t *testing.T, path string) authenticationv1.UserInfo {
	t.Helper()
	review, err := clientFor(t, path).AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}

func manifests(t *testing.T, c *Cluster) {
	ctx := t.Context()
	const good = "# a comment\n---\n" +
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied}\ndata: {key: value}\n---\n" +
		"apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: applied}\nprovisioner: " + provisioner + "\n"
	for range 2 { // the second time everything is there
		if err := c.Apply(ctx, []byte(good)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Client().StorageV1().StorageClasses().Get(ctx, "applied", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	const misspelt = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: misspelt}\ndate: {key: value}\n"
	if err := c.Apply(ctx, []byte(misspelt)); err == nil || !strings.Contains(err.Error(), "date") {
		t.Errorf("apply a misspelt field: %v", err)
	}
}

// deleteAll also shows that the controllers are back after the restart: the
// protection finalizers go only when they work.
func deleteAll(t *testing.T, c *Cluster, namespace string, claim *corev1.PersistentVolumeClaim) {
	ctx := t.Context()
	if err := c.Client().CoreV1().Pods(namespace).Delete(ctx, "consumer", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Client().CoreV1().PersistentVolumeClaims(namespace).Delete(ctx, claim.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitClaimGone(ctx, namespace, claim.Name); err != nil {
		t.Error(err)
	}
	volume := "pvc-" + string(claim.UID)
	if _, err := c.WaitVolumePhase(ctx, volume, corev1.VolumeReleased); err != nil {
		t.Error(err)
	}
	if err := c.Client().CoreV1().PersistentVolumes().Delete(ctx, volume, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitVolumeGone(ctx, volume); err != nil {
		t.Error(err)
	}
}

func TestMissingBinarySaysWhatToMake(t *testing.T) {
	_, err := Start(t.Context(), Options{Binary: filepath.Join(t.TempDir(), "controlplane")})
	if err == nil || !strings.Contains(err.Error(), "make .build/controlplane") {
		t.Errorf("%v", err)
	}
}

func TestStartTellsWhatTheProgramSaid(t *testing.T) {
	_, err := Start(t.Context(), Options{Dir: t.TempDir(), ExtraArgs: []string{"--address=nowhere"}})
	if err == nil || !strings.Contains(err.Error(), `--address "nowhere" is not an IP address`) {
		t.Errorf("%v", err)
	}
}

func TestReadyLineInPieces(t *testing.T) {
	var out strings.Builder
	r := &readyLine{next: &out, seen: make(chan struct{})}
	for _, piece := range []string{"not ready\nrea", "dy", "\nmore\n"} {
		if _, err := r.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-r.seen:
	default:
		t.Error("not seen")
	}
	if out.String() != "not ready\nready\nmore\n" {
		t.Errorf("passed on %q", out.String())
	}
}
