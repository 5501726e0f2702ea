//go:build modelreal

package model

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// The model's calls to the disk are made on a tmpfs.

// madeIn returns the calls that a world's exploration made, each of which has each of its results.
func madeIn(t *testing.T, name string, states int) (d *disks, all []asked) {
	t.Helper()
	x := explorerOf(t, states, runtime.GOMAXPROCS(0))
	x.explore(t.Context(), x.workers[0].opening(hosttest.Need(worldNamed(name))(t)))
	d = x.tree.disks
	different := map[string]asked{}
	for key, done := range d.outcomes.known {
		what := key.call.name + ": " + kindOf(d.results.value(done.result)) + fmt.Sprint(len(done.died))
		if was, known := different[what]; !known || d.before(key, was) {
			different[what] = key
		}
	}
	for _, what := range slices.Sorted(maps.Keys(different)) {
		all = append(all, different[what])
	}
	return d, all
}

// before orders calls of the same kind by what they are made on, so that the same ones are chosen
// each time.
func (d *disks) before(a, b asked) bool {
	return d.images.value(a.image).files.text()+fmt.Sprint(a.call) < d.images.value(b.image).files.text()+fmt.Sprint(b.call)
}

// kindOf is a result without the names that are in it.
func kindOf(r result) string {
	text := fmt.Sprintf("%T %v", r.value, r.err)
	for cell := range cells {
		text = strings.ReplaceAll(text, uidOf(cell), "UID")
	}
	return text
}

// workshops are the directories that calls are made in.
var workshops = regexp.MustCompile(`/[^ ]*/pool-[0-9]+`)

// returned is what a call returned, without the directory that it was made in.
func returned(r result) string {
	return workshops.ReplaceAllString(fmt.Sprintf("%+v, %v", r.value, r.err), "POOL")
}

// TestFilesystems makes calls that the model made once more, on the filesystems that the product is
// used on: after each of its steps each leaves the same, and it returns the same.
func TestFilesystems(t *testing.T) {
	for _, c := range []struct {
		kind string
		mib  int
	}{{"ext4", 64}, {"xfs", 320}, {"btrfs", 256}} {
		mount, compared := hosttest.PoolMount(t, hosttest.Mkfs(t, c.kind, c.mib)), map[string]bool{}
		for name, states := range calledIn {
			t.Run(c.kind+" "+name, func(t *testing.T) {
				d, all := madeIn(t, name, states)
				w := newWorkshop(t, mount)
				t.Logf("%d calls on %s", len(all), filepath.Dir(w.path))
				for _, call := range all {
					compared[call.call.name] = true
					if wrong := w.compare(d, call); wrong != "" {
						t.Error(wrong)
					}
				}
			})
		}
		for _, name := range slices.Concat(slices.Collect(maps.Keys(calls)), slices.Collect(maps.Keys(changes))) {
			if compared[name] == (shownElsewhere[name] != "") {
				t.Errorf("%s: the call %s: compared %t, and elsewhere %q", c.kind, name, compared[name], shownElsewhere[name])
			}
		}
	}
}

// calledIn are the worlds whose calls are made, and how many states of them are seen for that.
var calledIn = map[string]int{
	"archived": 3_000, "cloned": 2_000, "grown": 2_000, "every-halfway": 3_000, "shared-between": 5_000,
	"grown-restored": 10_000, "restored": 10_000, "shared-grown-killed": 10_000, "shared-grown-stopped": 10_000, "adopted": 3_000, "adopted-archived": 3_000, "snapshot": 2_000, "snapshot-ends": 2_000,
}

// shownElsewhere are the calls that those states do not make, and what shows them.
var shownElsewhere = map[string]string{"ResizeFrom": "TestResizeFrom (daemon/disk/volume)"}

// compare makes a call on a real directory, and returns how it differs from the model's.
func (w *workshop) compare(d *disks, of asked) string {
	want := d.outcomes.known[of]
	got := w.play(d, of.image, of.call)
	if got.image != want.image || !slices.Equal(got.steps, want.steps) {
		return fmt.Sprintf("%+v leaves %v after %v, the model's %v after %v", of.call, d.images.value(got.image).files, got.steps,
			d.images.value(want.image).files, want.steps)
	}
	if is, was := returned(d.results.value(got.result)), returned(d.results.value(want.result)); is != was {
		return fmt.Sprintf("%+v returns %s, the model's %s", of.call, is, was)
	}
	return ""
}
