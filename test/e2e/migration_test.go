package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// recipe is one section of docs/migration.md: the blocks that an operator copies.
type recipe struct{ title, toml, class, forward, back string }

var block = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

func recipes(t *testing.T) []recipe {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(rig.Root(), "docs", "migration.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all []recipe
	for _, section := range strings.Split(string(text), "\n## From ")[1:] {
		r := recipe{}
		r.title, _, _ = strings.Cut(section, "\n")
		into := []*string{&r.toml, &r.class, &r.forward, &r.back}
		for i, m := range block.FindAllStringSubmatch(section, -1) {
			if i >= len(into) || m[1] != []string{"toml", "yaml", "sh", "sh"}[i] {
				t.Fatalf("%s: block %d is of %q", r.title, i+1, m[1])
			}
			*into[i] = m[2]
		}
		if r.back == "" {
			t.Fatalf("%s: a block is missing", r.title)
		}
		all = append(all, r)
	}
	if len(all) != 7 {
		t.Fatalf("%d recipes", len(all))
	}
	return all
}

// system is the peer that wrote the volumes of a recipe, "" for one whose volumes cannot be adopted.
var systemOf = map[string]string{
	"torchbox": "torchbox", "MaZderMind": "MaZderMind", "kubevirt": "kubevirt", "kubevirt's CSI driver": "",
	"kubeboost": "kubeboost", "microk8s": "microk8s", "rancher and k3s": "rancher",
}

var tomlKey = func(key string) *regexp.Regexp { return regexp.MustCompile(`(?m)^` + key + ` = "(.*)"$`) }

// site is a host as the recipe's section has it: its configuration, with paths that this machine has.
func (r recipe) site(w *world) *host {
	w.Helper()
	pool := regexp.MustCompile(`\[pool\.(.*)\]`).FindStringSubmatch(r.toml)[1]
	theirs := tomlKey("path").FindStringSubmatch(r.toml)[1]
	h := &host{w: w, node: w.namespace + "-a"}
	w.must(w.AddNode(w.ctx, h.node, map[string]string{corev1.LabelHostname: "host-of-" + h.node}))
	mount := theirs
	if m := tomlKey("mount_point").FindStringSubmatch(r.toml); m != nil {
		mount = m[1]
	}
	ours := hosttestDir(w.T, "site")
	if !strings.Contains(r.toml, "require_mount = false") {
		h.image = hosttest.Mkfs(w, "ext4", 96)
		ours = hosttest.PoolMount(w, h.image)
	}
	h.mount = ours + strings.TrimPrefix(theirs, mount)
	if h.mount != ours {
		w.must(os.Mkdir(h.mount, 0o700))
	}
	paths := strings.NewReplacer(theirs, h.mount, mount, ours, `reserve = "10Gi"`, `reserve = "1Mi"`) // this machine is small
	kubeconfig := filepath.Join(hosttest.Dir(w), "kubeconfig")
	w.must(w.ServiceAccountKubeconfig(w.ctx, "hostpath-provisioner", "hostpath-provisioner", "", kubeconfig))
	var err error
	h.Daemon, err = rig.New(rig.Options{Dir: hosttest.Dir(w), Config: fmt.Sprintf("provisioner = %q\nnode = %q\nkubeconfig = %q\nmetrics = \"\"\n%s",
		w.provisioner, h.node, kubeconfig, paths.Replace(r.toml))})
	w.must(err)
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("the daemon's log, pool %s:\n%s", pool, h.Log())
		}
	})
	return h
}

// follow does what a block of commands says: the daemon's own for real, systemctl by the rig. What
// concerns the other program is the peers' part of the test.
func (h *host) follow(block string) {
	h.w.Helper()
	for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
		words := strings.Fields(line)
		switch {
		case words[0] == "hostpath-provisioner":
			if out, code := h.Call(words[1:]...); code != 0 {
				h.w.Fatalf("%s: exit code %d\n%s", strings.TrimSpace(line), code, out)
			}
		case line == "systemctl restart hostpath-provisioner\n":
			h.run()
		case line == "systemctl stop hostpath-provisioner\n":
			if _, code, err := h.Stop(h.w.soon()); err != nil || code != 0 {
				h.w.Fatalf("stopping: exit code %d, %v", code, err)
			}
		case words[0] == "kubectl", line == "rm -f /etc/systemd/system/hostpath-provisioner.service\n":
		default:
			h.w.Fatalf("nobody knows how to follow: %s", line)
		}
	}
}

// oldClass makes the recipe's class under a name of this test's.
func (r recipe) oldClass(w *world, h *host) *storagev1.StorageClass {
	w.Helper()
	var class storagev1.StorageClass
	w.must(yaml.UnmarshalStrict([]byte(r.class), &class))
	mode := immediate
	if class.VolumeBindingMode != nil {
		mode = *class.VolumeBindingMode
	}
	w.classOf(w.namespace+"-recipe", class.Provisioner, mode, func(c *storagev1.StorageClass) {
		if c.Parameters = class.Parameters; c.Parameters["pvDir"] != "" {
			c.Parameters["pvDir"] = h.mount
		}
	})
	return &class
}

// Every recipe as it stands in the documentation: volumes as the old program leaves them, the section's
// configuration and commands, a new claim of the old class, and the way back.
func TestMigrationRecipes(t *testing.T) {
	for _, r := range recipes(t) {
		t.Run(plain(r.title), func(t *testing.T) {
			w := newWorld(t)
			h := r.site(w)
			class := r.oldClass(w, h)
			var volumes []*corev1.PersistentVolume
			if system := systemOf[r.title]; system != "" {
				p := peerNamed(system)
				if strings.Contains(r.toml, "{{.Claim}}-{{.PV}}") {
					p.directory = func(pv, _, claim string) string { return claim + "-" + pv }
				}
				if p.provisioner != class.Provisioner {
					t.Fatalf("the class is of %s", class.Provisioner)
				}
				volumes = append(volumes, p.made(h, "one"), p.made(h, "two"))
			}
			before := h.tree()
			h.follow(r.forward)
			for _, pv := range volumes {
				before = append(before, "ours/volumes/"+pv.Name+".json")
			}
			h.wantTree(before...)

			w.claim("new", w.namespace+"-recipe", "1Mi", annotate(provisionOnNode, h.node))
			fresh := w.bound("new")
			if fresh.Annotations["pv.kubernetes.io/provisioned-by"] != class.Provisioner {
				t.Errorf("made as %q", fresh.Annotations)
			}
			if len(volumes) > 0 {
				theirs, ours := filepath.Base(volumes[0].Spec.HostPath.Path), filepath.Base(fresh.Spec.HostPath.Path)
				naming := strings.NewReplacer(volumes[0].Name, "PV", fresh.Name, "PV", "one", "CLAIM", "new", "CLAIM")
				if naming.Replace(theirs) != naming.Replace(ours) {
					t.Errorf("directories %q of theirs and %q of ours", theirs, ours)
				}
				w.deleteClaim("two") // adopted: removed or kept as its policy says
				w.must(w.WaitVolumeGone(w.soon(), volumes[1].Name))
				h.wantTree(theirs, ours, "ours/volumes/"+volumes[0].Name+".json", "ours/volumes/"+fresh.Name+".json")
			}
			h.follow(r.back)
			left := []string{filepath.Base(fresh.Spec.HostPath.Path)}
			for _, pv := range volumes[:len(volumes)/2] {
				left = append(left, filepath.Base(pv.Spec.HostPath.Path))
				now := w.volume(pv.Name)
				now.ResourceVersion, pv.ResourceVersion, now.ManagedFields, pv.ManagedFields = "", "", nil, nil
				if now.String() != pv.String() {
					t.Errorf("back as\n%s\nwas\n%s", now, pv)
				}
			}
			h.wantTree(left...)
		})
	}
}
