package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pages"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// recipe is one page of docs/from-*.md: the blocks that an operator copies.
type recipe struct{ title, toml, class, forward, back string }

// kinds are the blocks of a recipe, in their order. Others ("text") are for people.
var kinds = []string{"toml", "yaml", "sh", "sh"}

func recipes(t *testing.T) (all []recipe) {
	t.Helper()
	for _, file := range need(filepath.Glob(filepath.Join(rig.Root(), "docs", "from-*.md")))(t) {
		first, _, _ := strings.Cut(string(need(os.ReadFile(file))(t)), "\n")
		var is, texts []string
		for _, b := range need(pages.Open(rig.Root()).Blocks(filepath.Base(file)))(t) {
			if b.Language != "text" {
				is, texts = append(is, b.Language), append(texts, b.Text)
			}
		}
		if !slices.Equal(is, kinds) {
			t.Fatalf("%s: the blocks are of %q", first, is)
		}
		title := strings.TrimPrefix(first, "# From ")
		all = append(all, recipe{title, texts[0], texts[1], texts[2], texts[3]})
	}
	if len(all) != len(samplesOf) {
		t.Fatalf("%d recipes", len(all))
	}
	return all
}

// samples are what a system's own documents have an operator apply, below testdata/migration: see
// the README there.
type samples struct {
	peer, dir string   // who wrote its volumes, and the directory
	install   []string // the program, its class
	claim     string
	pod       string
	old       []corev1.PersistentVolumeAccessMode // of the volumes that it left
}

var once, many = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}

var samplesOf = map[string]samples{
	"torchbox":              {"torchbox", "torchbox", []string{"deployment.yaml", "storageclass.yaml"}, "testpvc.yaml", "testpod.yaml", many},
	"MaZderMind":            {"MaZderMind", "mazdermind", []string{"manifests/deployment.yaml", "manifests/storageclass.yaml"}, "manifests/test-claim.yaml", "manifests/test-pod.yaml", many},
	"kubevirt":              {"kubevirt", "kubevirt", []string{"deploy/kubevirt-hostpath-provisioner.yaml"}, "examples/claim.yaml", "examples/test-pod.yaml", once},
	"kubevirt's CSI driver": {"", "kubevirt-csi", []string{"deploy/csi/csi-driver-hostpath-provisioner.yaml", "deploy/csi/csi-kubevirt-hostpath-provisioner.yaml", "deploy/csi/csi-sc.yaml"}, "test-claim.yaml", "test-pod.yaml", once},
	"kubeboost":             {"kubeboost", "kubeboost", []string{"manifests/deployment.yaml", "manifests/daemonset.yaml", "manifests/storageclass.yaml"}, "manifests/test-claim.yaml", "manifests/test-pod.yaml", many},
	"microk8s":              {"microk8s", "microk8s", []string{"storage.yaml"}, "test-pvc.yaml", "test-pod.yaml", once},
	"rancher and k3s":       {"rancher", "rancher", []string{"deploy/local-path-storage.yaml"}, "examples/pvc.yaml", "examples/pod.yaml", once},
}

var tomlKey = func(key string) *regexp.Regexp { return regexp.MustCompile(`(?m)^` + key + ` = "(.*)"$`) }

// place is where a recipe is played: the only node of a cluster, called as in kubevirt's example,
// with the sample files in the working directory.
type place struct {
	*host
	recipe
	samples
	dir        string // of the sample files
	kubeconfig string // the administrator's, in a namespace of the recipe's own
}

// site is a host as the recipe's section has it: its configuration, with paths that this machine
// has.
func (r recipe) site(w *environment, node string) *place {
	w.Helper()
	theirs := tomlKey("path").FindStringSubmatch(r.toml)[1]
	p := &place{host: &host{w: w, node: node, label: node}, recipe: r, samples: samplesOf[r.title], dir: hosttest.Dir(w)}
	mount := theirs
	if m := tomlKey("mount_point").FindStringSubmatch(r.toml); m != nil {
		mount = m[1]
	}
	ours := hosttestDir(w.T, "site")
	if !strings.Contains(r.toml, "require_mount = false") {
		p.image = hosttest.Mkfs(w, "ext4", 64<<10) // with room for torchbox's 50Gi; it is sparse
		ours = hosttest.PoolMount(w, p.image)
	}
	p.mount = ours + strings.TrimPrefix(theirs, mount)
	if p.mount != ours {
		w.Must(os.Mkdir(p.mount, 0o700))
	}
	paths := strings.NewReplacer(theirs, p.mount, mount, ours, `reserve = "10Gi"`, `reserve = "1Mi"`) // this machine is small
	if p.samples.dir != "" {
		p.copySamples(paths)
	}
	kubeconfig := filepath.Join(hosttest.Dir(w), "kubeconfig")
	w.Must(w.ServiceAccountKubeconfig(w.Ctx, "hostpath-provisioner", "hostpath-provisioner", "", kubeconfig))
	config := fmt.Sprintf("provisioner = %q\nnode = %q\nkubeconfig = %q\nmetrics = \"\"\n%s",
		w.Provisioner, p.node, kubeconfig, paths.Replace(r.toml))
	p.Daemon = w.Unprepared(p.node, rig.Options{Dir: hosttest.Dir(w), Config: config})
	admin := need(clientcmd.LoadFromFile(w.Kubeconfig()))(w)
	admin.Contexts[admin.CurrentContext].Namespace = w.Namespace
	p.kubeconfig = filepath.Join(hosttest.Dir(w), "admin")
	w.Must(clientcmd.WriteToFile(*admin, p.kubeconfig))
	return p
}

// copySamples brings the sample files, with paths that this machine has.
func (p *place) copySamples(paths *strings.Replacer) {
	p.w.Helper()
	p.w.Must(os.CopyFS(p.dir, os.DirFS(filepath.Join("testdata", "migration", p.samples.dir))))
	p.w.Must(filepath.WalkDir(p.dir, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text := need(os.ReadFile(file))(p.w)
		return os.WriteFile(file, []byte(paths.Replace(string(text))), 0o600)
	}))
}

// shell runs a line of the page, or one of upstream's, as an operator's shell does.
func (p *place) shell(line string) {
	p.w.Helper()
	if out, err := p.w.sh(p.dir, p.kubeconfig, line); err != nil {
		p.w.Fatalf("%s: %v\n%s", strings.TrimSpace(line), err, out)
	}
}

// apply creates what a sample file has.
func (p *place) apply(files ...string) {
	p.w.Helper()
	for _, file := range files {
		p.shell("kubectl apply -f " + file)
	}
}

// settle is kubelet's part: pods that are asked to end, end.
func (p *place) settle() {
	p.w.Helper()
	pods := p.w.Client().CoreV1().Pods("")
	p.w.Eventually("the pods that were stopped are gone", func() bool {
		all := listIn(p.w, pods)
		done := true
		for _, pod := range all.Items {
			if pod.DeletionTimestamp != nil {
				done = false
				_ = p.w.Client().CoreV1().Pods(pod.Namespace).Delete(p.w.Ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
			}
		}
		return done
	})
}

// programs waits until pods of the system's program are there, or are not.
func (p *place) programs(there bool) {
	p.w.Helper()
	p.w.Eventually(fmt.Sprintf("the old program has pods: %t", there), func() bool {
		p.settle()
		all := listIn(p.w, p.w.Client().CoreV1().Pods(""))
		for _, pod := range all.Items {
			if pod.Namespace != p.w.Namespace {
				return there
			}
		}
		return !there
	})
}

// follow does what a block of commands says, systemctl by the rig, all else for real, and returns
// what hostpath-provisioner said.
func (p *place) follow(block string) (said string) {
	p.w.Helper()
	for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
		words := strings.Fields(line)
		switch {
		case words[0] == "hostpath-provisioner":
			if words[1] == "adopt" && words[2] != "--undo" {
				p.programs(false) // until then it refuses, and the operator repeats it
			}
			if words[1] == "adopt" && os.Getenv(fixture.Confined) != "" { // as the page says
				words = append(words, "--kubeconfig", p.kubeconfig)
			}
			out, code := p.Call(words[1:]...)
			if said += out; code != 0 {
				p.w.Fatalf("%s: exit code %d\n%s", strings.TrimSpace(line), code, out)
			}
		case line == "systemctl restart hostpath-provisioner\n":
			p.run()
		case line == "systemctl stop hostpath-provisioner\n":
			if _, code, err := p.Stop(p.w.Soon()); err != nil || code != 0 {
				p.w.Fatalf("stopping: exit code %d, %v", code, err)
			}
		case words[0] == "kubectl":
			p.shell(line)
			p.settle()
		case line == "rm -f /etc/systemd/system/hostpath-provisioner.service\n":
		default:
			p.w.Fatalf("it is not known how to follow: %s", line)
		}
	}
	return said
}

// sample reads the object in a sample file.
func sample[T any](p *place, file string) *T {
	p.w.Helper()
	text := need(os.ReadFile(filepath.Join(p.dir, file)))(p.w)
	object := new(T)
	p.w.Must(yaml.UnmarshalStrict(text, object))
	return object
}

// asUpstream compares the section's class with the one that upstream's file made.
func (p *place) asUpstream() *storagev1.StorageClass {
	p.w.Helper()
	class := new(storagev1.StorageClass)
	p.w.Must(yaml.UnmarshalStrict([]byte(p.class), class))
	theirs := getIn(p.w, p.w.classes(), class.Name)
	mode := immediate
	if class.VolumeBindingMode != nil {
		mode = *class.VolumeBindingMode
	}
	if theirs.Provisioner != class.Provisioner || *theirs.VolumeBindingMode != mode || len(theirs.Parameters) != len(class.Parameters) {
		p.w.Errorf("the page's class\n%s\nupstream's\n%+v", p.class, theirs)
	}
	return theirs
}

// Every recipe as it stands in the documentation, with upstream's own objects: the old program's
// Deployment and class are there, and volumes as it leaves them; the section's configuration and
// commands; upstream's example claim and pod; and the way back. One node, so that ReadWriteMany is
// as good as anything.
func TestMigrationRecipes(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	own := fixture.OwnPlane(t)
	all := &environment{&fixture.Environment{T: t, Cluster: own, Ctx: ctx}}
	all.Must(own.AddNode(ctx, "kube-1", nil))
	for _, r := range recipes(t) {
		t.Run(plain(r.title), func(t *testing.T) {
			w := &environment{fixture.New(t, own, "recipe-")}
			w.Ctx = ctx
			w.migrates(r)
		})
	}
}

func (w *environment) migrates(r recipe) {
	w.Helper()
	p := r.site(w, "kube-1")
	p.apply(p.install...)
	w.Cleanup(func() {
		p.shell("kubectl delete --wait=false -f " + strings.Join(p.install, " -f "))
		p.programs(false)
	})
	p.programs(true)
	class := p.asUpstream()
	old := peer{provisioner: class.Provisioner, directory: byVolume} // a CSI driver
	if p.peer != "" {
		old = peerNamed(p.peer)
	}
	if old.modes = p.old; old.provisioner != class.Provisioner {
		w.Fatalf("the class is of %s", class.Provisioner)
	}
	made, same := func(name string) *corev1.PersistentVolume { return old.made(p.host, name) }, w.unchanged
	if p.peer == "" {
		made, same = func(name string) *corev1.PersistentVolume { return p.madeByCSI(class.Provisioner, name) }, w.asBefore
	}
	one, two := made("one"), made("two")
	theirs := old.directory(one.Name, w.Namespace, "one")
	p.follow(p.forward)
	w.Removes("two", two.Name) // taken over: removed with its claim
	kept := w.Bound("one")
	p.wantTree(theirs, "ours/volumes/"+kept.Name+".json")
	if data, err := os.ReadFile(filepath.Join(p.mount, theirs, "data")); string(data) != "one" || cluster.PathOf(kept) != filepath.Join(p.mount, theirs) {
		w.Errorf("taken over with %q, %v, at %s", data, err, cluster.PathOf(kept))
	}

	p.works(old, class, theirs, "ours/volumes/"+kept.Name+".json")
	p.follow(p.back)
	p.wantTree(theirs)
	same(one)
}

// works plays the example claim and pod of the system's documents. kept is what the pool has
// beside.
func (p *place) works(old peer, class *storagev1.StorageClass, kept ...string) {
	w := p.w
	w.Helper()
	claim := sample[corev1.PersistentVolumeClaim](p, p.claim)
	p.apply(p.claim, p.samples.pod)
	fresh := w.Bound(claim.Name)
	if by := fresh.Annotations["pv.kubernetes.io/provisioned-by"]; by != class.Provisioner || fresh.Spec.AccessModes[0] != claim.Spec.AccessModes[0] {
		w.Errorf("made as %q with %q", by, fresh.Spec.AccessModes)
	}
	ours := old.directory(fresh.Name, w.Namespace, claim.Name)
	p.wantTree(append([]string{ours, "ours/volumes/" + fresh.Name + ".json"}, kept...)...)
	pod := sample[corev1.Pod](p, p.samples.pod).Name
	need(cluster.WaitFor(w.Soon(), w.pods(), pod, func(o *corev1.Pod) bool { return o.Spec.NodeName == p.node }))(w)
	// The last lines of their documents: pod and claim are deleted, and the directory goes.
	p.shell("kubectl delete -f " + p.samples.pod + " -f " + p.claim)
	w.Must(w.WaitVolumeGone(w.Soon(), fresh.Name))
	p.wantTree(kept...)
}

// unchanged wants the object to be what it was.
func (w *environment) unchanged(pv *corev1.PersistentVolume) {
	w.Helper()
	now := w.Volume(pv.Name)
	now.ResourceVersion, pv.ResourceVersion, now.ManagedFields, pv.ManagedFields = "", "", nil, nil
	if now.String() != pv.String() {
		w.Errorf("back as\n%s\nwas\n%s", now, pv)
	}
}
