package daemon

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

type dependency struct {
	prefix, reason string
	by             []string
}

// outside are the modules of others that may be imported, why, and by which packages.
var outside = []dependency{
	{"golang.org/x/sys/unix", "system calls", []string{
		"cmd/hostpath-provisioner", "daemon", "daemon/adopt", "daemon/node/confine",
		"daemon/adopt/follow", "daemon/node/csi", "daemon/node/csi/freeze", "daemon/node/csi/target",
		"daemon/node/inline", "daemon/host/ipc", "daemon/controllers/leadership",
		"daemon/host/mountpoint", "daemon/host/prepare", "daemon/host/prober", "daemon/host/state",
		"daemon/disk/volume", "daemon/disk/tree", "daemon/disk/treecopy", "hostcheck",
		"hostcheck/mounts", "hostcheck/openat", "hostcheck/quota", "hostcheck/subvolume",
		"selinux",
	}},
	{"k8s.io/api/", "the objects that rules decide about", []string{
		"cmd/hostpath-provisioner", "daemon", "daemon/adopt", "daemon/rules/adoptrules",
		"daemon/controllers/podclaims", "daemon/rules/claimfilter", "daemon/kube/claimindex",
		"daemon/controllers", "daemon/controllers/everynode", "daemon/controllers/expansion",
		"daemon/adopt/follow", "daemon/adopt/forget", "daemon/controllers/away", "daemon/kube",
		"daemon/controllers/leadership", "daemon/controllers/ownership", "daemon/rules/plan",
		"daemon/controllers/presence", "daemon/controllers/report", "daemon/adopt/unpublish",
		"daemon/adopt/overview",
		"daemon/adopt/why", "packaging",
	}},
	{"k8s.io/apimachinery/pkg/util/duration", "ages as kubectl prints them", []string{
		"cmd/hostpath-provisioner",
	}},
	{"k8s.io/apimachinery/pkg/api/equality", "an object compared with what it must be", []string{
		"daemon/adopt/follow", "daemon/rules/plan",
	}},
	{"k8s.io/apimachinery/pkg/api/resource", "sizes in Kubernetes' own notation", []string{
		"daemon/adopt", "daemon/adopt/follow", "daemon/rules/adoptrules", "daemon/config",
		"daemon/controllers/expansion", "daemon/rules/plan",
	}},
	{"k8s.io/apimachinery/pkg/apis/meta/v1", "the objects that rules decide about", []string{
		"cmd/hostpath-provisioner", "daemon/rules/adoptrules", "daemon/rules/claimfilter",
		"daemon/adopt/follow", "daemon/adopt/forget", "daemon/kube", "daemon/rules/plan", "daemon/spec/snapshotapi",
		"daemon/adopt/why", "packaging",
	}},
	{"k8s.io/apimachinery/pkg/util/validation", "names as the API server allows them", []string{
		"cmd/hostpath-provisioner", "daemon", "daemon/config", "daemon/controllers/leadership",
		"daemon/rules/plan", "daemon/host/state", "packaging",
	}},
	{"k8s.io/apimachinery/pkg/types", "patches and names", []string{
		"daemon", "daemon/adopt", "daemon/rules/claimfilter", "daemon/adopt/follow",
		"daemon/controllers", "daemon/kube", "daemon/controllers/report",
		"daemon/spec/snapshotapi",
	}},
	{"k8s.io/apimachinery/pkg/runtime", "objects of an API group that k8s.io/api has not", []string{
		"daemon/spec/snapshotapi",
	}},
	{"k8s.io/apimachinery/pkg/runtime", "objects of several kinds in one list", []string{
		"cmd/hostpath-provisioner",
	}},
	{"k8s.io/apimachinery/pkg/api/errors", "what the API server refused", []string{
		"daemon/adopt", "daemon/controllers", "daemon/controllers/expansion",
		"daemon/adopt/follow", "daemon/adopt/forget", "daemon/kube", "daemon/controllers/presence",
		"daemon/controllers/podclaims", "daemon/controllers/report",
		"daemon/controllers/storagecapacity",
		"daemon/adopt/overview", "daemon/adopt/unpublish", "daemon/adopt/why",
	}},
	{"k8s.io/apimachinery/pkg/", "an object and a selector of the API server's, compared with what is known here", []string{
		"daemon/kube/claimindex",
	}},
	{"k8s.io/apimachinery/", "requests and watches", []string{"daemon/kube"}},
	{"k8s.io/client-go/util/workqueue", "queues with retries", []string{
		"daemon/controllers/podclaims", "daemon/controllers",
	}},
	{"k8s.io/client-go/", "the API", []string{"daemon/kube"}},
	{"k8s.io/klog/v2", "to silence client-go", []string{"cmd/hostpath-provisioner"}},
	{"github.com/spf13/", "commands and flags", []string{"cmd/hostpath-provisioner"}},
	{"k8s.io/client-go/tools/clientcmd", "kubectl's flags", []string{"cmd/hostpath-provisioner"}},
	{"github.com/BurntSushi/toml", "the configuration", []string{"daemon/config"}},
	{"github.com/landlock-lsm/go-landlock/landlock", "Landlock's versions", []string{
		"daemon/node/confine",
	}},
	{"github.com/prometheus/client_golang/", "metrics", []string{
		"daemon/metrics", "packaging/grafana/generate",
	}},
	{"github.com/grafana/grafana-foundation-sdk/go/", "the dashboard, by a module of its own", []string{
		"packaging/grafana/generate",
	}},
	{"github.com/opencontainers/selinux/go-selinux", "labels", []string{"selinux"}},
	{"github.com/coreos/go-systemd/v22/", "notification, journal and sockets", []string{"systemd"}},
	{"github.com/container-storage-interface/spec/lib/go/csi", "the Container Storage Interface", []string{
		"daemon/node/csi",
	}},
	{"google.golang.org/grpc", "its transport", []string{"daemon/node/csi"}},
	{"google.golang.org/protobuf/types/known/wrapperspb", "a field of its messages", []string{
		"daemon/node/csi",
	}},
	{"k8s.io/kubelet/pkg/apis/pluginregistration/v1", "kubelet's registration of plugins", []string{
		"daemon/node/csi",
	}},
	{"github.com/prometheus/exporter-toolkit/web", "who may read the metrics", []string{
		"daemon/config", "daemon/metrics",
	}},
	{"go.yaml.in/yaml/v2", "the files that it reads, by its parser", []string{"daemon/config"}},
	{"sigs.k8s.io/yaml", "the packages' own description; JSON as YAML for people", []string{
		"cmd/hostpath-provisioner", "packaging/install",
	}},
}

// TestOutside reads what the shipped packages import of others.
func TestOutside(t *testing.T) {
	used := make([]bool, len(outside))
	eachFile(t, []string{"cmd", "daemon", "hostcheck", "packaging", "selinux", "systemd"}, func(pkg, name string, file *ast.File) {
		for _, spec := range file.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			domain, _, _ := strings.Cut(imported, "/")
			if !strings.Contains(domain, ".") || strings.HasPrefix(imported, module) {
				continue // the standard library's, or ours
			}
			at := slices.IndexFunc(outside, func(o dependency) bool {
				return strings.HasPrefix(imported, o.prefix) && slices.Contains(o.by, pkg)
			})
			if at < 0 {
				t.Errorf("%s imports %s, and no reason is known", name, imported)
				continue
			}
			used[at] = true
		}
	})
	for i, o := range outside {
		if !used[i] {
			t.Errorf("nothing imports %s for %s", o.prefix, o.reason)
		}
	}
}

// TestNoClientset: the typed clientset registers all of Kubernetes' types. With it the binary has
// 40 MB instead of 25, and each daemon takes 10 MiB more (make footprint). An import of client-go
// that looks harmless may bring it along.
func TestNoClientset(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "../cmd/hostpath-provisioner")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := strings.Fields(string(out))
	if !slices.Contains(linked, "k8s.io/client-go/rest") {
		t.Fatalf("go list names %d packages and not the client", len(linked))
	}
	for _, name := range linked {
		if strings.HasPrefix(name, "k8s.io/client-go/kubernetes") || strings.HasPrefix(name, "k8s.io/client-go/discovery") {
			t.Errorf("%s is linked", name)
		}
	}
}

// TestPlanIsPure: what plan decides depends on nothing but what it is given. It has no way to a
// disk, a network, a clock or chance.
func TestPlanIsPure(t *testing.T) {
	pure := []string{"cmp", "crypto/sha256", "encoding/hex", "errors", "fmt", "hash/fnv", "io/fs", "maps", "math", "math/big", "path", "slices", "strconv", "strings", "time", "unicode"}
	eachFile(t, []string{"daemon/rules/plan"}, func(_, name string, file *ast.File) {
		for _, spec := range file.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			domain, _, _ := strings.Cut(imported, "/")
			if !strings.Contains(domain, ".") && !slices.Contains(pure, imported) {
				t.Errorf("%s imports %s", name, imported)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if pkg, isName := selected(call, ok); isName && pkg == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "Sleep", "NewTimer", "NewTicker"}, call.Sel.Name) {
				t.Errorf("%s asks the clock: time.%s", name, call.Sel.Name)
			}
			return true
		})
	})
}

// selected is the package or variable that a name is selected from.
func selected(s *ast.SelectorExpr, ok bool) (string, bool) {
	if !ok {
		return "", false
	}
	from, isName := s.X.(*ast.Ident)
	if !isName {
		return "", false
	}
	return from.Name, true
}

// eachFile parses each file of these trees that is shipped; directories are given as pkg, from the
// root.
func eachFile(t *testing.T, trees []string, each func(pkg, name string, file *ast.File)) {
	t.Helper()
	for _, top := range trees {
		err := fs.WalkDir(os.DirFS(".."), top, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/testdata/") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", name), nil, parser.SkipObjectResolution)
			if err == nil {
				each(path.Dir(name), name, file)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
