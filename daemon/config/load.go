package config

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Load reads file and the conf.d/*.toml beside it in name order, where a later file's value
// replaces an earlier one's key by key. The error is Errors: everything that is wrong, not the
// first of it. own are directories of the daemon itself, besides those of the packages: no pool may
// share files with one.
func Load(file string, own ...string) (Config, error) {
	l := loader{files: []string{file}, config: Default(), own: ownDirectories(own)}
	more, err := dropIns(file)
	if err != nil {
		l.errors = append(l.errors, err.(Errors)...)
		l.partial = true
	}
	l.files = append(l.files, more...)
	l.checkDirectories()
	settings := l.read()
	l.apply(settings)
	l.finish()
	if len(l.errors) > 0 {
		return Config{}, Errors(order(l.errors, l.files))
	}
	for _, w := range order(l.warnings, l.files) {
		l.config.Warnings = append(l.config.Warnings, w.Error())
	}
	return l.config, nil
}

// loader carries one Load.
type loader struct {
	files    []string
	own      []string // directories of the daemon
	config   Config
	pools    map[string]*draft
	set      map[string]setting // by key: which file and line decided
	errors   []Error
	warnings []Error
	noTable  bool // pool, an entry of it, or its paths were refused, and are not also missing
	partial  bool // a file could not be read: what is absent may stand in it
}

// draft is a pool that is being read.
type draft struct {
	Pool
	at     setting         // where the pool was opened first
	broken map[string]bool // keys that had an error, about which nothing more is said
}

// read collects the settings of all files, in the order of files and lines.
func (l *loader) read() []setting {
	var all []setting
	for _, file := range l.files {
		settings, errs := readFile(file)
		slices.SortFunc(settings, func(a, b setting) int {
			return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(len(a.path), len(b.path)), cmp.Compare(a.key(), b.key()))
		})
		all = append(all, settings...)
		l.errors = append(l.errors, errs...)
		l.partial = l.partial || len(errs) > 0 && settings == nil
	}
	return all
}

func (l *loader) apply(settings []setting) {
	l.pools, l.set = map[string]*draft{}, map[string]setting{}
	for _, s := range settings {
		switch {
		case s.path[0] != "pool":
			l.top(s)
		case len(s.path) == 1:
			l.wantTable(s, "[pool.NAME]")
		case len(s.path) == 2:
			if l.wantTable(s, "a table") {
				l.draft(s)
			}
		case len(s.path) == 3:
			l.poolKey(s)
		default: // below a key that was refused as a table already
		}
	}
}

func (l *loader) wantTable(s setting, want string) bool {
	if s.value != nil {
		l.noTable = true
		l.refuse(s, "want %s, got %s", want, typeName(s.value))
	}
	return s.value == nil
}

func (l *loader) top(s setting) {
	if len(s.path) > 1 {
		return // its table was refused
	}
	set, ok := rootKeys[s.path[0]]
	if !ok {
		l.refuse(s, "unknown key%s", nearest(s.path[0], append(names(rootKeys), "pool")))
		return
	}
	l.set[s.key()] = s
	if err := set(&l.config, s.value); err != nil {
		l.refuse(s, "%v", err)
	}
}

// draft returns the pool that a setting belongs to, and makes it the first time it is named.
func (l *loader) draft(s setting) *draft {
	name := s.path[1]
	d := l.pools[name]
	if d == nil {
		at := s
		at.path = s.path[:2]
		d = &draft{Pool: DefaultPool(name), at: at, broken: map[string]bool{}}
		l.pools[name] = d
		if err := checkPoolName(name); err != nil {
			l.refuse(at, "%v", err)
		}
	}
	return d
}

func (l *loader) poolKey(s setting) {
	d := l.draft(s)
	key := s.path[2]
	set, ok := poolKeys[key]
	if !ok {
		l.refuse(s, "unknown key%s", nearest(key, names(poolKeys)))
		return
	}
	l.set[s.key()] = s
	d.broken[key] = false
	if err := set(&d.Pool, s.value); err != nil {
		d.broken[key] = true
		l.refuse(s, "%v", err)
	}
}

func (l *loader) refuse(s setting, format string, args ...any) {
	l.errors = append(l.errors, Error{File: s.file, Line: s.line, Key: s.key(), Text: fmt.Sprintf(format, args...)})
}

// where is the place of a pool's key, or of the pool where the key is not written.
func (l *loader) where(d *draft, key string) setting {
	if key == "path" && d.Name != d.Table() {
		key = "paths"
	}
	path := []string{"pool", d.Table(), key}
	if s, ok := l.set[setting{path: path}.key()]; ok {
		return s
	}
	at := d.at
	at.path = path
	return at
}

// whole is the place of something that no line says.
func (l *loader) whole(key string) setting {
	if s, ok := l.set[key]; ok {
		return s
	}
	return setting{path: strings.Split(key, "."), file: l.files[0]}
}

// finish fills in what depends on other keys or on the host, and checks what takes more than one
// key.
func (l *loader) finish() {
	if l.config.Node == "" && l.set["node"].file == "" {
		node, err := HostNodeName()
		if err != nil {
			l.refuse(l.whole("node"), "%v", err)
		}
		l.config.Node = node
	}
	l.expand()
	for _, name := range names(l.pools) {
		l.finishPool(l.pools[name])
		l.config.Pools = append(l.config.Pools, l.pools[name].Pool)
	}
	if len(l.pools) == 0 && !l.partial && !l.noTable {
		l.refuse(l.whole("pool"), noPool)
	}
	l.checkOwn()
	l.checkOverlaps()
	l.checkDefaults()
	l.checkAliases()
	l.checkCSIDrivers()
	l.checkKubeconfig()
	l.checkMetrics()
}

func (l *loader) warn(s setting, format string, args ...any) {
	l.warnings = append(l.warnings, Error{File: s.file, Line: s.line, Key: s.key(), Text: fmt.Sprintf(format, args...)})
}

// Error is one thing that is wrong, and where.
type Error struct {
	File string // as given to Load, or beside it
	Line int    // from 1; 0 where no line says it (a key that is absent, a file that cannot be read)
	Key  string // "pool.fast.path"; "" for the file as a whole
	Text string
	// Own: a pool shares files with a directory of the daemon.
	Own bool
	// Untrusted: a user other than root can write what root's commands believe (ErrUntrusted).
	Untrusted bool
}

func (e Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	b.WriteString(": ")
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.Text)
	return b.String()
}

// Errors is everything that is wrong, one line each, in the order of the files and their lines.
type Errors []Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

const noPool = "no pool is configured"

// NoPool reports whether nothing else is wrong: so is the file that an installation makes.
func (e Errors) NoPool() bool { return len(e) == 1 && e[0].Text == noPool }

// Untrusted reports whether one is that others can write what root's commands believe.
func (e Errors) Untrusted() bool {
	return slices.ContainsFunc(e, func(one Error) bool { return one.Untrusted })
}

// order sorts findings as a reader meets them: files in the order they were read, then lines, then
// what no line says.
func order(found []Error, files []string) []Error {
	slices.SortStableFunc(found, func(a, b Error) int {
		return cmp.Or(
			cmp.Compare(slices.Index(files, a.File), slices.Index(files, b.File)),
			cmp.Compare(uint(a.Line-1), uint(b.Line-1)), // 0 becomes the largest
			cmp.Compare(a.Key, b.Key),
		)
	})
	return slices.Compact(found)
}

// HostNodeName is the name that kubelet gives this host's Node when nothing overrides it: the
// host's name as the kernel has it, trimmed and in lower case
// (k8s.io/kubernetes/pkg/util/node.GetHostname).
func HostNodeName() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("the host's name: %w", err)
	}
	name := strings.ToLower(strings.TrimSpace(host))
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", fmt.Errorf("the host's name %q cannot be a node's name", host)
	}
	return name, nil
}
