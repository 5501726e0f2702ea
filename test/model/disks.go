package model

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// disks is every content that the pool's filesystem had, and what the product's calls made of it.
// Each call is made once on a real directory for each content, and once more for each of its steps
// at which the process can die.
type disks struct {
	images  interned[string, *image]
	results interned[string, result]
	specs   interned[string, volume.Spec]
	runs    interned[run, run]

	outcomes memo[asked, *outcome]
	ended    memo[uint32, *outcome] // of calls that were stopped, by run
	beset    memo[stranger, *outcome]
	calls    atomic.Int64 // that were made on the real directory
}

// asked is a call and the content it is made on.
type asked struct {
	image uint32
	call  call
}

// outcome is what a call leaves and returns, and what there is after each of its steps, of which a
// process that dies can leave each that is different.
type outcome struct {
	image, result uint32
	steps, died   []left
}

// left is what there is after a step of a call.
type left struct {
	step  string
	image uint32
}

// moved is the result of each call while the pool's storage is away.
var moved = result{err: fmt.Errorf("%w: /srv/p", volume.ErrDirectoryReplaced)}

// takenImage is the number of takenPool.
const takenImage = 1

func newDisks() *disks {
	d := &disks{}
	d.images.of(emptyPool.text(), parseImage(emptyPool))
	d.image(takenPool())
	d.result(moved)
	return d
}

func (d *disks) result(r result) uint32 {
	return d.results.of(fmt.Sprintf("%+v|%v", r.value, r.err), r)
}

func (d *disks) spec(s volume.Spec) uint32 { return d.specs.of(fmt.Sprintf("%+v", s), s) }

func (d *disks) image(f files) uint32 { return d.images.of(f.text(), parseImage(f)) }

// do is what a call makes of an image. w is the caller's own directory.
func (d *disks) do(image uint32, c call, w *workshop) *outcome {
	return d.outcomes.of(asked{image, c}, func() *outcome {
		d.calls.Add(1)
		return w.play(d, image, c)
	})
}

// memo has what was made of each key.
type memo[K comparable, V any] struct {
	mu    sync.RWMutex
	known map[K]V
}

// of is what is known of a key, or is made now.
func (m *memo[K, V]) of(key K, make func() V) V {
	m.mu.RLock()
	value, known := m.known[key]
	m.mu.RUnlock()
	if known {
		return value
	}
	value = make()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[K]V{}
	}
	m.known[key] = value
	return value
}

// died is the value of a panic in a step.
type died struct{ step string }

// play makes a call on a real directory, and once more up to each of its steps.
func (w *workshop) play(d *disks, image uint32, c call) *outcome {
	steps, r := w.attempt(d, image, c, -1)
	o := &outcome{image: d.image(w.read()), result: d.result(r)}
	seen := map[uint32]bool{image: true}
	for n, step := range steps {
		w.attempt(d, image, c, n)
		now := left{step, d.image(w.read())}
		o.steps = append(o.steps, now)
		if !seen[now.image] {
			seen[now.image] = true
			o.died = append(o.died, now)
		}
	}
	return o
}

// attempt makes a call, and has the process die after its n-th step. It returns the steps that were
// done.
func (w *workshop) attempt(d *disks, image uint32, c call, n int) (steps []string, r result) {
	w.write(d.images.value(image).files)
	defer func() {
		if dead, is := recover().(died); is {
			steps = append(steps, dead.step)
		}
	}()
	pool := w.pool(c, func(step string) {
		if len(steps) == n {
			panic(died{step})
		}
		steps = append(steps, step)
	})
	return steps, w.call(d, pool, c)
}

// destroys reports whether a call moves or removes what may be in use.
func (c call) destroys() bool {
	switch c.name {
	case "Trash", "Archive", "Undo", "PutBack", "Purge", "Sweep", "Retain":
		return true
	default:
		return false
	}
}

// hostID is what the daemon's files have in their names in a shared pool.
func (c call) hostID() string {
	if c.pool == sharedPool && c.host != soleHost {
		return "host000" + string('0'+rune(c.host))
	}
	return ""
}

// call makes a call of daemon/disk/volume.
func (w *workshop) call(d *disks, p *volume.Pool, c call) result {
	pv := ""
	if c.cell != noCell {
		pv = nameOf(c.cell)
	}
	if change := changes[c.name]; change != nil {
		return result{err: change(p, context.Background(), w.id, pv)}
	}
	value, err := calls[c.name](made{d, p, w.id, pv, c})
	return result{value, err}
}

// made is a call that is made on a real directory.
type made struct {
	disks *disks
	pool  *volume.Pool
	id    mounts.Identity
	pv    string
	call
}

func (m made) spec() volume.Spec { return m.disks.specs.value(m.call.spec) }
func (m made) bytes() int64      { return (more(m.call.spec) % (most + 1)).bytes() }
func (m made) was() int64        { return (more(m.call.spec) / (most + 1)).bytes() }

// calls are those that are given more than a volume's name, or return more than an error.
var calls = map[string]func(m made) (value any, err error){
	"Create": func(m made) (any, error) { // the path that it returns is this directory's
		_, err := m.pool.Create(context.Background(), m.id, m.spec())
		return nil, err
	},
	"Purge":  func(m made) (any, error) { return m.pool.Purge(context.Background(), m.id, m.pv) },
	"Lookup": func(m made) (any, error) { return m.pool.Lookup(context.Background(), m.id, m.pv) },
	"LookupArchived": func(m made) (any, error) {
		return m.pool.LookupArchived(context.Background(), m.id, m.pv, uidOf(m.cell))
	},
	"Exists": func(m made) (any, error) {
		return m.pool.Exists(context.Background(), m.id, map[uint32]string{0: "", 1: otherPattern}[m.call.spec]+m.pv)
	},
	"List":  func(m made) (any, error) { return m.pool.List(context.Background(), m.id) },
	"Sweep": func(m made) (any, error) { return m.pool.Sweep(context.Background(), m.id) },
	"Resize": func(m made) (any, error) {
		return nil, m.pool.Resize(context.Background(), m.id, m.pv, m.bytes())
	},
	"ResizeFrom": func(m made) (any, error) {
		return m.pool.ResizeFrom(context.Background(), m.id, m.pv, m.was(), m.bytes())
	},
	"Usable":  func(m made) (any, error) { return nil, m.pool.Usable(context.Background(), m.id, m.pv) },
	"Adopt":   func(m made) (any, error) { return nil, m.pool.Adopt(context.Background(), m.id, m.spec().Record) },
	"PutBack": func(m made) (any, error) { return nil, m.pool.PutBack(context.Background(), m.id, m.pv, uidOf(m.cell)) },
}

// changes are the calls of a volume's name that return an error alone.
var changes = map[string]func(*volume.Pool, context.Context, mounts.Identity, string) error{
	"Undo": (*volume.Pool).Undo, "Trash": (*volume.Pool).Trash, "Discard": (*volume.Pool).Discard,
	"Archive": (*volume.Pool).Archive, "Retain": (*volume.Pool).Retain, "Published": (*volume.Pool).Published,
	"Forget": (*volume.Pool).Forget, "Hold": holding(true), "Unhold": holding(false),
}

func holding(held bool) func(*volume.Pool, context.Context, mounts.Identity, string) error {
	return func(p *volume.Pool, ctx context.Context, id mounts.Identity, pv string) error {
		return p.Hold(ctx, id, pv, held)
	}
}

// identity of a directory.
func identity(t hosttest.T, path string) mounts.Identity {
	fd := hosttest.Need(unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	return hosttest.Need(mounts.IdentityOf(fd))(t)
}

// files is the content of a pool: by path below it, a file's text, or "/" for a directory.
type files map[string]string

const (
	own       = record.OwnDir
	nowhere   = record.Nowhere
	inPool    = record.InPool
	emptying  = record.Emptying
	inArchive = record.InArchive
	inTrash   = record.InTrash
	inStaging = record.InStaging
)

// emptyPool is a pool that was prepared.
var emptyPool = files{"people": "/", "people/data": byPeople, own: "/", own + "/staging": "/", own + "/trash": "/", own + "/volumes": "/", own + "/archive": "/"}

// byPeople is what is in directories that people made.
const byPeople = "people"

// takenPool is a pool with a directory of people under the name of the first volume.
func takenPool() files {
	f := maps.Clone(emptyPool)
	f[nameOf(lives-1)], f[nameOf(lives-1)+"/data"] = "/", byPeople
	return f
}

func (f files) text() string {
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(f)) {
		b.WriteString(path + "\x00" + f[path] + "\x01")
	}
	return b.String()
}

// image is what the invariants ask of the files.
type image struct {
	files    files
	cells    [cells]onFile
	snapshot onFile
}

// onFile is what the pool has of one cell.
type onFile struct {
	recorded bool // among the volumes
	begun    bool // a record that has not its name yet
	archived bool // a record in the archive
	retained bool
	unnoted  bool         // the record says that there is no object yet
	node     int          // that has it, of those with a directory each
	place    record.Place // of its directory
	promised uint8        // units by its records
	size     more         // by the record of the volume
	all      uint8        // units by all records of the pool
	origin   string       // the UID of the claim whose volume it is a copy of, "" for none
	half     bool         // its record says that the copy's object was not to be made yet
	data     string       // what a pod wrote there
	twice    bool         // it has two directories
	away     bool         // it is whole on the filesystem that is not mounted
	people   bool         // people have made one under its name
	alone    bool         // the directory of people that has no volume's name is as it was
}

// places are where a cell's directory can be, by its path with "PV" for the volume's name.
var places = []struct {
	path  string
	place record.Place
}{
	{"PV", record.InPool}, {otherPattern + "PV", record.InPool}, {own + "/staging/PV", record.InStaging}, {own + "/trash/PV", record.InTrash},
	{own + "/trash/PV~", record.Emptying}, {own + "/archive/PV", record.InArchive}, {own + "/archive/PV~2", record.InArchive},
}

func parseImage(f files) *image {
	m := &image{files: f}
	for cell := range cells {
		m.cells[cell] = f.parse(nameOf(cell))
	}
	m.snapshot = f.parse(snapshotHandle)
	m.total()
	return m
}

// parse is what there is of a volume, or of the snapshot.
func (f files) parse(pv string) (c onFile) {
	c.place, c.alone = record.Nowhere, f["people/data"] == byPeople
	for _, at := range places {
		path := strings.Replace(at.path, "PV", pv, 1)
		switch {
		case f[path] != "/":
		case f[path+"/data"] == byPeople:
			c.people = true
		default:
			c.twice = c.place != record.Nowhere
			c.place, c.data = at.place, f[path+"/data"]
		}
	}
	text, recorded := f[own+"/volumes/"+pv+".json"]
	for path := range f {
		begun, is := strings.CutPrefix(path, own+"/volumes/"+pv+".json.")
		c.begun = c.begun || is && strings.HasSuffix(begun, "new")
	}
	_, c.archived = f[own+"/archive/"+pv+".json"]
	r := recordIn(text)
	c.recorded, c.retained, c.unnoted = recorded, r.Retained, r.Unpublished
	c.origin, c.half = f.origin(pv)
	c.promised, c.size = f.promised(pv, c.place), sizeIn(r)
	return c
}

// workshop is a real directory in which calls are made. One worker of the model has it.
type workshop struct {
	path string
	id   mounts.Identity
}

// newWorkshop makes a directory below dir.
func newWorkshop(t hosttest.T, dir string) *workshop {
	path := hosttest.Need(os.MkdirTemp(dir, "pool-"))(t)
	return &workshop{path, identity(t, path)}
}

// created is the time in a record, which is another one in each run.
var created = regexp.MustCompile(`"created": ?"[^"]*"`)

// read is the directory's content.
func (w *workshop) read() files {
	f, err := filesIn(w.path, func(text string) string {
		return created.ReplaceAllString(text, `"created": "2026-01-01T00:00:00Z"`)
	})
	check(err)
	return f
}

// filesIn reads a directory. modelled is what the model has in place of a path or a text. What goes
// meanwhile is not in it.
func filesIn(root string, modelled func(string) string) (files, error) {
	all := files{}
	return all, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && path == root || os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		below := modelled(strings.TrimPrefix(path, root+"/"))
		if e.IsDir() {
			all[below] = "/"
			return nil
		}
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		all[below] = modelled(string(text))
		return err
	})
}

// write makes the directory's content.
func (w *workshop) write(f files) {
	entries, err := os.ReadDir(w.path)
	check(err)
	for _, e := range entries {
		check(os.RemoveAll(filepath.Join(w.path, e.Name())))
	}
	for _, path := range slices.Sorted(maps.Keys(f)) {
		full := filepath.Join(w.path, path)
		if f[path] == "/" {
			err = os.Mkdir(full, 0o700)
		} else {
			err = os.WriteFile(full, []byte(f[path]), 0o600)
		}
		check(err)
		if strings.HasSuffix(path, ".new") { // of a process that died long ago
			check(os.Chtimes(full, time.Time{}, time.Now().Add(-24*time.Hour)))
		}
	}
}

// check ends the program: what the model itself needs cannot be done.
func check(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		panic(err)
	}
}
