package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// several is a host whose pool has as many paths, each on a disk of its own (a tmpfs) of so many
// MiB.
type several struct {
	*host
	disks []string // their mount points
	mib   []int
}

func (w *environment) newDisks(extra string, mib ...int) *several {
	w.Helper()
	s := &several{mib: mib}
	dir := hosttest.Dir(w)
	var paths []string
	for i := range mib {
		s.disks = append(s.disks, filepath.Join(dir, fmt.Sprintf("d%02d", i)))
		w.Must(os.Mkdir(s.disks[i], 0o700))
		s.mount(w, i)
		paths = append(paths, strconv.Quote(s.disks[i]))
	}
	s.host = w.hostAt(s.disks[0], "a", "paths = ["+strings.Join(paths[1:], ", ")+"]", `immutable = "off"`, extra)
	w.Must(w.AddHost(w.Ctx, s.node, map[string]string{corev1.LabelHostname: "host-of-" + s.node}))
	return s
}

func (s *several) mount(w *environment, i int) {
	w.Helper()
	hosttest.Mount(w, "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm,mode=0700", s.mib[i]), "tmpfs", s.disks[i])
}

// free is what each open pool has for one more volume, in bytes, by its path, and how many volumes
// there are.
func (s *several) free() (all map[string]int64, volumes int) {
	s.w.Helper()
	all = map[string]int64{}
	for _, p := range s.status().Pools {
		volumes += p.Volumes
		if p.Open && p.Free != nil {
			all[p.Path] = int64(*p.Free)
		}
	}
	return all, volumes
}

// on is which disk has a volume.
func (s *several) on(pv *corev1.PersistentVolume) string {
	s.w.Helper()
	disk := filepath.Dir(cluster.PathOf(pv))
	if _, err := os.Stat(filepath.Join(disk, pv.Name)); err != nil {
		s.w.Error(err)
	}
	return disk
}

// holding are the disks that have anything of a volume.
func (s *several) holding(pv string) (disks []string) {
	s.w.Helper()
	for _, disk := range s.disks {
		for _, name := range s.w.Tree(disk) {
			if strings.Contains(name, pv) {
				disks = append(disks, disk)
				break
			}
		}
	}
	return disks
}

// claimsOfDisks is how many claims TestSeveralDisks makes; DISKS_CLAIMS is another number.
func claimsOfDisks() int {
	if n, err := strconv.Atoi(os.Getenv("DISKS_CLAIMS")); err == nil {
		return n
	}
	return 100
}

// One class over twelve disks of different sizes, two of them closed: each volume is on one disk,
// what is left on the open ones differs by less than a tenth, the scheduler is told the largest
// volume that fits, and a refusal names each disk. Expansions and clones stay on their disk.
func TestSeveralDisks(t *testing.T) {
	w, n := withDriver(t), claimsOfDisks()
	var mib []int
	for i := range 12 {
		mib = append(mib, 20+n/8+2*(i%4)*n/100)
	}
	s := w.newDisks(`clones = "copy"`, mib...)
	for _, i := range []int{4, 11} {
		hosttest.Unmount(w, s.disks[i])
	}
	s.run()
	class := w.Class("c", immediate, fixture.Parameters("pool", "fast"), fixture.Expandable)
	published, names := w.Class("published", wait), numbered("data", n)
	for _, name := range names {
		w.claim(name, class, "1Mi")
	}
	made := map[string]int{}
	for _, name := range names {
		pv := w.Bound(name)
		made[s.on(pv)]++
		if pv.Labels["hostpath-provisioner/pool"] == "" || len(s.holding(pv.Name)) != 1 {
			t.Errorf("%s: %v on %v", name, pv.Labels, s.holding(pv.Name))
		}
	}
	var free map[string]int64
	w.Eventually("the status has all volumes", func() bool {
		var volumes int
		free, volumes = s.free()
		return len(free) == 10 && volumes == n
	})
	least, most := int64(1<<62), int64(0)
	for _, bytes := range free {
		least, most = min(least, bytes), max(most, bytes)
	}
	t.Logf("%d claims are on %v; from %d to %d bytes are left", n, made, least, most)
	if len(made) != 10 || most-least > most/10 {
		t.Errorf("%d claims are on %v; from %d to %d bytes are left", n, made, least, most)
	}
	w.awaitPublished(published, func(all map[string]int64) bool { return all[s.node] == most>>20 })
	w.refused(w.claim("large", class, "1Gi"), "NotEnoughSpace", "fast has ", "fast-d01 has ",
		"fast-d04 is closed (", "fast-d10 has ", "fast-d11 is closed (")
	origin := w.Bound(names[0])
	w.Must(w.Request(names[0], "3Mi"))
	w.Sized(names[0], "3Mi")
	if clone := w.bound("clone", class, "3Mi", from(names[0])); s.on(clone) != s.on(origin) {
		t.Errorf("the clone is on %s, its source on %s", s.on(clone), s.on(origin))
	}
	fill := fixture.Parameters("pools", "fast-d01,fast-d02", "placement", "fill")
	if on := s.on(w.bound("last", w.Class("fill", immediate, fill), "1Mi")); on != s.disks[1] {
		t.Errorf("filled up is %s", on)
	}
}

// A daemon is killed after it has made a directory and before its object. The next one goes on
// there, though another disk has more space by now; and where that disk is away, another one gets
// the volume, and what was begun is undone when the disk is back.
func TestBegunOnOneDisk(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]bool{"there": false, "away": true} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			s := w.newDisks("", 40, 30)
			door := w.behindDoor(s.host)
			reached := make(chan struct{}, 1)
			door.on(http.MethodPost, volumesAt, func(_ http.ResponseWriter, r *http.Request) bool {
				select {
				case reached <- struct{}{}:
				default:
				}
				<-r.Context().Done()
				return true
			})
			s.run()
			c := w.claim("data", w.Class("c", immediate), "20Mi")
			fixture.Receive(w.Environment, reached, "the daemon makes the object")
			s.Kill()
			door.instead(func(http.ResponseWriter, *http.Request) bool { return false })
			pv := "pvc-" + string(c.UID)
			if on := s.holding(pv); len(on) != 1 || on[0] != s.disks[0] {
				t.Fatalf("begun on %v", on)
			}
			want := s.disks[0]
			if away {
				want = s.disks[1]
				hosttest.Mount(w, "-t", "tmpfs", "-o", "size=1m", "tmpfs", s.disks[0])
			}
			s.host.run()
			if on := s.on(w.Bound("data")); on != want {
				t.Errorf("made on %s, want %s", on, want)
			}
			if away {
				hosttest.Unmount(w, s.disks[0])
			}
			w.WantTree(s.node, s.disks[0], map[bool][]string{false: pool.Of(pv)}[away]...)
			w.WantTree(s.node, s.disks[1], map[bool][]string{true: pool.Of(pv)}[away]...)
		})
	}
}
