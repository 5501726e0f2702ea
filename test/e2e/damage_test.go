package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// Records that are torn, empty, of another volume or of a newer version: nothing is done with their
// volumes, not after a restart either, and the object says why. What is whole goes on. When the
// record is restored, the removal that waited is done.
func TestDamagedRecords(t *testing.T) {
	w, h, class := oneHost(t)
	damages := map[string]func([]byte) []byte{
		"torn":  func(text []byte) []byte { return text[:len(text)/2] },
		"empty": func([]byte) []byte { return nil },
		"newer": func(text []byte) []byte {
			return []byte(strings.Replace(string(text), `"version": 2`, `"version": 3`, 1))
		},
		"another": func(text []byte) []byte {
			return []byte(strings.Replace(string(text), `"pv": "pvc-`, `"pv": "pvc-0`, 1))
		},
	}
	records, pvs := map[string][]byte{}, map[string]string{}
	for name, damage := range damages {
		pvs[name] = h.made(name, class).Name
		text := need(os.ReadFile(h.record(pvs[name])))(w)
		records[name] = text
		// As a new file: in place, what is cut short would be read from the attribute beside it.
		w.Must(os.Remove(h.record(pvs[name])))
		w.Must(os.WriteFile(h.record(pvs[name]), damage(text), 0o600))
	}
	good, stays := h.made("good", class), h.made("stays", class)
	w.Removes("good", good.Name)
	all := []string{stays.Name}
	for name, pv := range pvs {
		all = append(all, pv)
		w.DeleteClaim(name)
		w.event(w.Volume(pv), "RecordDamaged")
	}
	h.wantTree(pool.Of(all...)...)
	h.again()
	w.Must(h.WaitStatus(w.Soon(), "1 of 1 pool open"))
	after := h.made("after", class)
	h.wantTree(pool.Of(append(all, after.Name)...)...)
	h.call("volumes").Counts("damaged", len(damages))
	for name, pv := range pvs {
		w.Must(os.WriteFile(h.record(pv), records[name], 0o600))
	}
	w.Must(h.Signal(syscall.SIGHUP))
	w.Gone(slices.Collect(maps.Values(pvs))...)
	h.wantTree(pool.Of(stays.Name, after.Name)...)
}

func (h *host) record(pv string) string { return filepath.Join(h.ours("volumes"), pv+".json") }

// The state directory is lost while the daemon runs, and once more while it does not: the pool is
// known by its own marker and remembered anew, and no volume is touched. A second daemon that finds
// no lock in the new state directory is kept out by the pool's.
func TestStateDirectoryLost(t *testing.T) {
	w, h, class := oneHost(t)
	one := h.made("one", class)
	w.Must(os.RemoveAll(h.Path("state")))
	two, second := h.made("two", class), h.twin(h.config())
	w.Must(os.MkdirAll(h.Path("state"), 0o700)) // or the daemon has made it
	w.Must(os.RemoveAll(second.Path("state")))
	w.Must(os.Symlink(h.Path("state"), second.Path("state")))
	second.run()
	w.Must(second.WaitStatus(w.Soon(), "uses this pool"))
	second.Kill()
	remembered := func() bool {
		_, err := os.Stat(h.Path("state", "pools", "fast.json"))
		return err == nil
	}
	looks := hosttestDir(t, "looks")
	w.Eventually("the pool is remembered again", func() bool {
		hosttest.Mount(t, "-t", "tmpfs", "none", looks) // makes the daemon look
		hosttest.Unmount(t, looks)
		return remembered()
	})
	h.Kill()
	w.Must(os.RemoveAll(h.Path("state")))
	h.run()
	w.Must(h.WaitStatus(w.Soon(), "1 of 1 pool open"))
	if !remembered() {
		t.Error("the pool is open and not remembered")
	}
	three := h.made("three", class)
	w.Removes("one", one.Name)
	h.wantTree(pool.Of(two.Name, three.Name)...)
}

// The filesystem is full when a volume is made, with room for so many blocks, or so many inodes:
// the first write fails, or the second, and so on until none does. The claim says so and nothing is
// left; a volume can be removed; when there is room again, the claim goes through.
func TestFullAtEveryWrite(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"blocks", "inodes"} {
		t.Run(what, func(t *testing.T) {
			w := newEnvironment(t)
			// No room for root alone, and an inode for each 4 KiB: what is free is free for all.
			image := hosttest.Mkfs(t, "ext4", 16, "-m", "0", "-b", "1024", "-N", "128")
			h := w.newHostOn(image, "a", "reserve = \"0\"").serving().run()
			class, looks := w.Class("c", immediate), hosttestDir(t, "looks")
			failed, made := 0, 0
			for room, try := 0, 0; room < 8; try++ {
				switch h.asksForTheLast(fmt.Sprint(try), class, looks, func() (empty func()) { return h.fill(what, room) }) {
				case "":
					made++
				case "NotEnoughSpace": // the pool was looked at before the claim came, and nothing was written: once more
					continue
				default:
					failed++
				}
				room++
			}
			if failed < 2 || made == 0 {
				t.Errorf("%d failed and %d made: the writes in between were not tried", failed, made)
			}
			h.tellsFull(what, looks)
		})
	}
}

// tellsFull has a pool without volumes, and with a reserve, tell that it is full of blocks or inodes.
func (h *host) tellsFull(what, looks string) {
	w := h.w
	w.Helper()
	h.edit(`reserve = "0"`, `reserve = "1Mi"`)
	w.Must(h.Signal(syscall.SIGHUP))
	w.Must(h.WaitReady(w.Soon(), 2))
	alerts := map[string]string{"blocks": "PoolFull", "inodes": "PoolInodes"}
	full, empty := h.records(alerts[what]), h.fill(what, 0)
	hosttest.Mount(w, "-t", "tmpfs", "none", looks) // makes the daemon look
	w.Must(h.WaitStatus(w.Soon(), "full"))
	full.Fires()
	empty()
	hosttest.Unmount(w, looks)
	full.Resolves()
}

// asksForTheLast makes a claim when the pool has been filled, and returns what it was told, "" if
// it was bound at once. A volume is removed meanwhile, and the claim is bound when the pool is
// empty again.
func (h *host) asksForTheLast(try, class, looks string, fill func() (empty func())) (told string) {
	w := h.w
	w.Helper()
	victim, empty := h.made("victim-"+try, class), fill()
	claim := w.claim("c-"+try, class, "1Ki", annotate(provisionOnNode, h.node))
	if told = w.boundOrTold(claim.Name, claim, "ProvisioningFailed", "PoolClosed", "NotEnoughSpace"); told != "" {
		h.wantTree(pool.Of(victim.Name)...) // nothing half-made, between two tries
	}
	w.DeleteClaim("victim-" + try) // removals go on in a full pool
	w.Must(w.WaitVolumeGone(w.Soon(), victim.Name))
	empty()
	hosttest.Mount(w, "-t", "tmpfs", "none", looks) // makes the daemon look
	hosttest.Unmount(w, looks)
	pv := w.Bound(claim.Name)
	h.wantTree(pool.Of(pv.Name)...)
	w.Removes(claim.Name, pv.Name)
	h.wantTree()
	return told
}

// fill leaves room for so many blocks or inodes of the pool, and returns what takes it back.
func (h *host) fill(what string, room int) (empty func()) {
	h.w.Helper()
	dir := filepath.Join(h.mount, "lost+found", "filler")
	h.w.Must(os.MkdirAll(dir, 0o700))
	file := filepath.Join(dir, "blocks")
	h.w.Must(os.WriteFile(file, nil, 0o600))
	var n int
	if what == "inodes" {
		for {
			f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(n)), os.O_CREATE, 0o600)
			if errors.Is(err, unix.ENOSPC) {
				break
			}
			h.w.Must(err)
			f.Close()
			n++
		}
		for i := range min(room, n) {
			h.w.Must(os.Remove(filepath.Join(dir, fmt.Sprint(i))))
		}
	} else {
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		h.w.Must(err)
		defer f.Close()
		var size int64
		for block := make([]byte, 1024); err == nil; {
			if _, err = f.WriteAt(block, size); err == nil {
				size += 1024
			}
		}
		if !errors.Is(err, unix.ENOSPC) {
			h.w.Must(err)
		}
		h.w.Must(f.Sync()) // delayed allocation takes more than it needs
		h.w.Must(f.Truncate(size - int64(room)*1024))
		h.w.Must(f.Sync())
	}
	return func() { h.w.Must(os.RemoveAll(dir)) }
}

// The pool's directory is replaced by another, by a link or by nothing while the daemon works: the
// pool closes, what came in its place is not written to, and when it is put back, what waited goes
// through.
func TestPoolDirectoryReplaced(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a")
	sub, config := filepath.Join(h.mount, "sub"), h.config()
	was := fmt.Sprintf("[pool.fast]\npath = %q", h.mount)
	w.Must(h.Configure(strings.Replace(config, was, fmt.Sprintf("[pool.sub]\npath = %q\nmount_point = %q", sub, h.mount), 1)))
	h.call("prepare", "sub").Ends(0)
	h.run()
	class := w.Class("c", immediate)
	below := &host{w: w, node: h.node, mount: sub, Daemon: h.Daemon}
	all := []string{h.made("before", class).Name}
	marker := need(os.ReadFile(filepath.Join(sub, ".hostpath-provisioner/pool.json")))(w)
	aside := filepath.Join(h.mount, "aside")
	for name, put := range map[string]func() error{
		"nothing":            nil,
		"an empty directory": func() error { return os.Mkdir(aside, 0o700) },
		"a link to it":       func() error { return os.Symlink("aside", aside) },
		"a file":             func() error { return os.WriteFile(aside, nil, 0o600) },
		"another pool":       func() error { return os.CopyFS(aside, os.DirFS(filepath.Join(h.mount, "twin"))) },
	} {
		t.Run(name, func(t *testing.T) {
			twin := filepath.Join(h.mount, "twin", ".hostpath-provisioner")
			for _, own := range []string{"volumes", "staging", "trash", "archive"} { // all that a pool has
				w.Must(os.MkdirAll(filepath.Join(twin, own), 0o700))
			}
			w.Must(os.WriteFile(filepath.Join(twin, "pool.json"), []byte(strings.Replace(string(marker), `"id": "`, `"id": "X`, 1)), 0o600))
			if put == nil {
				w.Must(os.Rename(sub, aside))
			} else { // at once: a daemon that looks in between closes the pool for want of a directory
				w.Must(put())
				w.Must(unix.Renameat2(unix.AT_FDCWD, sub, unix.AT_FDCWD, aside, unix.RENAME_EXCHANGE))
			}
			was := entriesOf(t, sub)
			claim := w.claim(plain(name), class, "1Mi", annotate(provisionOnNode, h.node))
			w.refused(claim, "PoolClosed")
			w.Must(h.WaitStatus(w.Soon(), "pool sub is closed"))
			if now := entriesOf(t, sub); now != was {
				t.Errorf("what came in its place was written to: %s, was %s", now, was)
			}
			w.Must(os.RemoveAll(sub))
			w.Must(os.Rename(aside, sub))
			all = append(all, w.Bound(claim.Name).Name)
			below.wantTree(pool.Of(all...)...)
		})
	}
}

func entriesOf(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		all = append(all, path)
		return nil
	})
	return strings.Join(all, " ")
}

// The data of a bound volume is gone from the disk. That is said as long as it is so, by the exit
// codes of status and volumes and by a gauge, and not only in the moment in which it was found.
func TestLostVolumeStaysTold(t *testing.T) {
	w, h, class := servingHost(t)
	lost, kept := h.made("lost", class), h.made("kept", class)
	gauge := func(state string, n int) {
		t.Helper()
		h.tells(fmt.Sprintf("hostpath_provisioner_volumes{pool=\"fast\",state=%q} %d\n", state, n))
	}
	codes := func(want int, said ...string) {
		t.Helper()
		for _, command := range []string{"status", "volumes"} {
			h.call(command).Ends(want, said...)
		}
	}
	gauge("bound", 2)
	gauge("missing", 0)
	codes(0)
	place, away := filepath.Join(h.mount, lost.Name), filepath.Join(h.mount, "away")
	missing := h.records("VolumesMissing")
	w.Must(os.Rename(place, away))
	w.Must(h.Signal(syscall.SIGHUP)) // or ten minutes
	gauge("missing", 1)
	gauge("bound", 1)
	missing.Fires()
	h.call("status").Becomes("is missing")
	codes(1, "missing")
	h.warns("VolumeLost: the data of 1 volume is missing")
	w.Must(os.Rename(away, place))
	w.Must(h.Signal(syscall.SIGHUP))
	gauge("missing", 0)
	gauge("bound", 2)
	w.Eventually("the status has that", func() bool {
		return !strings.Contains(h.call("status").Out, "is missing")
	})
	codes(0)
	missing.Resolves()
	damaged := h.records("VolumesDamaged")
	text := need(os.ReadFile(h.record(kept.Name)))(w)
	w.Must(os.WriteFile(h.record(kept.Name), []byte("{"), 0o600))
	w.Must(h.Signal(syscall.SIGHUP))
	gauge("damaged", 1)
	damaged.Fires()
	h.warns("RecordDamaged: 1 record cannot be read")
	w.Must(os.WriteFile(h.record(kept.Name), text, 0o600))
	w.Must(h.Signal(syscall.SIGHUP))
	gauge("damaged", 0)
	damaged.Resolves()
}

// warns waits until check warns of pool fast, which is no reason to keep pods from it.
func (h *host) warns(of string) {
	h.w.Helper()
	warning := "\npool fast: warning " + of + "\nhint: which, says: "
	h.call("check").Becomes(warning)
	h.call("check").Ends(0, warning)
}
