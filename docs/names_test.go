package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/metrics"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// Every reason has its place in troubleshooting.md, and every place there is of a reason.
func TestReasons(t *testing.T) {
	real := append(constants(t, "../daemon/rules/plan/reasons.go"), constants(t, "../hostcheck/reasons.go")...)
	if m := regexp.MustCompile(`return "(NotChecked)"`).FindStringSubmatch(read(t, "../daemon/disk/gate/gate.go")); m != nil {
		real = append(real, m[1]) // of a pool that was not looked at yet
	}
	same(t, "reasons", headings(read(t, "troubleshooting.md"), 3, 3), real)
}

// Each reason of check --cluster is in the table of troubleshooting.md, and each row is of one.
func TestReasonsOfTheCluster(t *testing.T) {
	same(t, "reasons of the cluster", firstCells(t, "troubleshooting.md", "Cluster"), constants(t, "../daemon/rules/clustercheck/reasons.go"))
}

// constants are the values of a file's constants, whose names begin with Reason.
func constants(t *testing.T, name string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, id := range spec.Names {
			if literal, ok := spec.Values[i].(*ast.BasicLit); ok && strings.HasPrefix(id.Name, "Reason") {
				value, _ := strconv.Unquote(literal.Value)
				all = append(all, value)
			}
		}
		return false
	})
	if len(all) < 20 {
		t.Fatalf("%s has only %q", name, all)
	}
	return all
}

// Every key of the configuration is explained, and no other.
func TestKeys(t *testing.T) {
	documented := append(firstCells(t, "configuration.md", "Keys for the daemon"), firstCells(t, "configuration.md", "Keys for a pool")...)
	same(t, "keys", documented, config.Keys())
}

// Every parameter of a class is explained; plan's own refusal lists them.
func TestParameters(t *testing.T) {
	_, refusal := plan.Self{}.Resolve(class(map[string]string{"no-such": ""}), nil)
	_, known, _ := strings.Cut(refusal.Message, "known are ")
	documented := firstCells(t, "configuration.md", "StorageClass")
	documented = slices.DeleteFunc(documented, func(name string) bool { // the second table has the class's own fields
		return slices.Contains([]string{"provisioner", "reclaimPolicy", "volumeBindingMode", "allowedTopologies", "mountOptions", "allowVolumeExpansion"}, name)
	})
	same(t, "parameters", documented, strings.Split(known, ", "))
}

// Every metric of ours is explained with its labels.
func TestMetrics(t *testing.T) {
	described := make(chan *prometheus.Desc, 1000)
	metrics.New("test", metrics.Sources{}).Registry.Describe(described)
	close(described)
	operation, real := read(t, "operation.md"), []string(nil)
	for d := range described {
		m := regexp.MustCompile(`fqName: "(hostpath_provisioner_\w+)".*variableLabels: \{([^}]*)\}`).FindStringSubmatch(d.String())
		if m == nil {
			continue
		}
		real = append(real, m[1])
		for label := range strings.SplitSeq(m[2], ",") {
			row := regexp.MustCompile("(?m)^\\| `" + m[1] + "` \\|([^|]*)\\|").FindStringSubmatch(operation)
			if row == nil || label != "" && !strings.Contains(row[1], "`"+label+"`") || label == "" && strings.TrimSpace(row[1]) != "" {
				t.Errorf("%s: label %s is not documented", m[1], label)
			}
		}
	}
	same(t, "metrics", firstCells(t, "operation.md", "Metrics and health"), real)
}

// Every attribute of a log record is a field of the journal, and is explained.
func TestJournalFields(t *testing.T) {
	fields := map[string]bool{}
	for _, dir := range []string{"../daemon", "../cmd"} {
		err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err == nil {
				ast.Inspect(file, func(n ast.Node) bool { attributes(n, fields); return true })
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var real []string
	for key := range fields {
		real = append(real, "HOSTPATH_"+strings.ToUpper(key))
	}
	same(t, "fields", firstCells(t, "operation.md", "Logs"), real)
}

// attributes notes the keys of a call such as c.Log.Warn(message, key, value, key, value).
func attributes(n ast.Node, into map[string]bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Info", "Warn", "Error"}, method.Sel.Name) {
		return
	}
	field, isField := method.X.(*ast.SelectorExpr)
	variable, isVariable := method.X.(*ast.Ident)
	if !(isField && field.Sel.Name == "Log" || isVariable && variable.Name == "log") {
		return
	}
	for i := 1; i < len(call.Args); i += 2 {
		if key, ok := call.Args[i].(*ast.BasicLit); ok {
			name, _ := strconv.Unquote(key.Value)
			into[name] = true
		}
	}
}
