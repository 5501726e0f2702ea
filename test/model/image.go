package model

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

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
	c.recorded, c.retained = recorded, strings.Contains(text, `"retained": true`)
	c.origin, c.half = f.origin(pv)
	c.promised, c.size = f.promised(pv, c.place), sizeIn(text)
	c.unnoted = strings.Contains(text, `"unpublished": true`)
	return c
}

// workshop is a real directory in which calls are made. One worker of the model has it.
type workshop struct {
	path string
	id   mounts.Identity
}

// newWorkshop makes a directory below dir.
func newWorkshop(dir string) (*workshop, error) {
	path, err := os.MkdirTemp(dir, "pool-")
	if err != nil {
		return nil, err
	}
	id, err := identity(path)
	return &workshop{path, id}, err
}

// created is the time in a record, which is another one in each run.
var created = regexp.MustCompile(`"created": ?"[^"]*"`)

// read is the directory's content.
func (w *workshop) read() files {
	f := files{}
	check(filepath.WalkDir(w.path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == w.path {
			return err
		}
		below := strings.TrimPrefix(path, w.path+"/")
		if entry.IsDir() {
			f[below] = "/"
			return nil
		}
		text, err := os.ReadFile(path)
		f[below] = created.ReplaceAllString(string(text), `"created": "2026-01-01T00:00:00Z"`)
		return err
	}))
	return f
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
