package volume

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Damaged is a record that cannot be read.
type Damaged struct {
	File string // its name in volumes/ or archive/
	Err  error  // ErrDamaged, or the kernel's
}

// Leftover is something in one of the daemon's own directories that has no record.
type Leftover struct {
	Place record.Place // InStaging, InTrash or InArchive
	Name  string
}

// Inventory is what is in a pool. Everything is sorted by name.
type Inventory struct {
	Prepared  bool            // the pool has the daemon's directory
	Volumes   []record.Record // by PV
	Archived  []record.Record // archived and forgotten, by name there
	Foreign   []string        // entries of the pool's directory that no record knows; they are never touched
	Leftovers []Leftover      // what Sweep and Purge did not remove yet, or only people can
	Damaged   []Damaged
}

// Promised is what the pool keeps for its volumes, in bytes: also for those in the trash and in the
// archive, and for those that are retained, but for none whose directory is gone.
func (inv Inventory) Promised() (sum uint64) {
	for _, r := range slices.Concat(inv.Volumes, inv.Archived) {
		if r.Place == record.Nowhere {
			continue
		}
		if sum += r.Reserved(); sum < r.Reserved() {
			return math.MaxUint64
		}
	}
	return sum
}

// List reads the whole pool. Calls that are under way can show in it half done, but a volume never
// shows as foreign.
func (p *Pool) List(ctx context.Context, id mounts.Identity) (Inventory, error) {
	return of(ctx, p, id, "reading the records", func(s *session) (Inventory, error) {
		return s.list(ctx)
	})
}

func (s *session) list(ctx context.Context) (inv Inventory, err error) {
	if inv.Prepared, err = exists(s.root, metaDir); err != nil {
		return inv, err
	}
	c := census{}
	if inv.Prepared {
		if c, err = s.census(); err != nil {
			return inv, err
		}
		if err = s.records(ctx, &inv, c); err != nil {
			return inv, err
		}
	} else if c[""], err = s.names(""); err != nil {
		return inv, err
	}
	inv.Foreign, err = s.foreign(c, inv)
	return inv, err
}

// census is the names in each of our directories and in the pool (""), read in the order in which a
// volume moves through them, so that one that moves meanwhile is seen at least once.
type census map[string]map[string]bool

func (s *session) census() (c census, err error) {
	c = census{}
	for _, dir := range []string{stagingDir, "", trashDir, archiveDir, volumesDir} {
		if c[dir], err = s.names(dir); err != nil {
			return c, err
		}
	}
	return c, nil
}

// names reads a directory through a descriptor of its own, whose position is not shared.
func (s *session) names(name string) (map[string]bool, error) {
	path := "."
	if name != "" {
		if _, err := s.dir(name); err != nil {
			return nil, err
		}
		path = metaDir + "/" + name
	}
	fd, err := openDir(s.root, path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	all, err := names(fd)
	set := make(map[string]bool, len(all))
	for _, n := range all {
		set[n] = true
	}
	return set, wrap("reading "+path, err)
}

// locate is session.locate by name, for all volumes at once.
func (c census) locate(r record.Record) (place record.Place, name string) {
	place, name, _ = locate(r, func(dir, name string) (bool, error) { return c[dir][name], nil })
	return place, name
}

func (s *session) records(ctx context.Context, inv *Inventory, c census) error {
	claimed := map[Leftover]bool{}
	for _, pv := range recordNames(c[volumesDir]) {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.pool.progress(s.call)
		r, err := s.load(pv)
		switch {
		case errors.Is(err, ErrNotRecorded): // removed meanwhile, or torn and not yet swept
			continue
		case err != nil:
			inv.Damaged = append(inv.Damaged, Damaged{pv + recordSuffix, err})
			// Whose it is cannot be told, so the usual name stands for it in the trash.
			claimed[Leftover{record.InTrash, pv}], claimed[Leftover{record.InTrash, pv + emptyingSuffix}] = true, true
			continue
		}
		place, name := c.locate(r)
		r.Place = place
		inv.Volumes = append(inv.Volumes, r)
		for _, l := range []Leftover{{record.InStaging, pv}, {record.InTrash, pv}, {record.InTrash, pv + emptyingSuffix}, {place, name}} {
			claimed[l] = true
		}
	}
	s.archived(inv, c[archiveDir], claimed)
	for _, at := range []struct {
		place record.Place
		dir   string
	}{{record.InStaging, stagingDir}, {record.InTrash, trashDir}, {record.InArchive, archiveDir}} {
		for _, name := range sorted(c[at.dir]) {
			if l := (Leftover{at.place, name}); !claimed[l] {
				inv.Leftovers = append(inv.Leftovers, l)
			}
		}
	}
	return nil
}

// archived reads the records that were moved to the archive with their directories.
func (s *session) archived(inv *Inventory, names map[string]bool, claimed map[Leftover]bool) {
	for _, name := range sorted(names) {
		if !strings.HasSuffix(name, recordSuffix) || claimed[Leftover{record.InArchive, name}] {
			continue
		}
		r, err := readRecord(s.dirs[archiveDir], name, "")
		if errors.Is(err, errNotAFile) {
			continue // a directory with such a name
		}
		claimed[Leftover{record.InArchive, name}] = true
		if err != nil {
			inv.Damaged = append(inv.Damaged, Damaged{name, err})
			continue
		}
		claimed[Leftover{record.InArchive, strings.TrimSuffix(name, recordSuffix)}] = true
		r.Place, r.Archived = record.InArchive, true
		inv.Archived = append(inv.Archived, r)
	}
}

// recordNames are the PVs that have a record, or a new one that has not its final name.
func recordNames(files map[string]bool) []string {
	pvs := map[string]bool{}
	for name := range files {
		pv, is := strings.CutSuffix(name, recordSuffix)
		if !is {
			pv, is = strings.CutSuffix(name, newSuffix)
		}
		if is && record.CheckPV(pv) == nil {
			pvs[pv] = true
		}
	}
	return sorted(pvs)
}

// foreign are the entries of the pool that no record knows. The pool was read before the records,
// and each entry is looked at once more after them: what was made or undone meanwhile is not
// foreign.
func (s *session) foreign(c census, inv Inventory) ([]string, error) {
	known, staged := map[string]bool{metaDir: true}, map[string]string{}
	for _, v := range inv.Volumes {
		if v.Place == record.InStaging { // then the one in the pool is foreign
			staged[v.Directory] = v.PV
		} else {
			known[v.Directory] = true
		}
	}
	var all []string
	for _, name := range sorted(c[""]) {
		if known[name] {
			continue
		}
		s.pool.progress(s.call)
		there, err := exists(s.root, name)
		if pv := staged[name]; err == nil && there && pv != "" { // unless it was moved there meanwhile
			there, err = exists(s.dirs[stagingDir], pv)
		}
		if err != nil {
			return nil, err
		}
		if there {
			all = append(all, name)
		}
	}
	return all, nil
}

func sorted(set map[string]bool) []string {
	all := make([]string, 0, len(set))
	for name := range set {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
