package volume

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// What volumes take is read by their projects, all of them, and told apart from what else is on the
// filesystem.
func TestUsage(t *testing.T) {
	r, k := onXFS(t)
	for i := range 3 {
		must(t, unix.Mkdir(filepath.Join(r.path, r.limited(t, pvName(i)).Directory, "sub"), 0o700))
	}
	giveProject(t, filepath.Join(r.path, r.lookup(t, pvName(2)).Directory, "sub"), quota.Project{ID: 7})
	u, err := r.Usage(t.Context(), r.id)
	must(t, err)
	var got []string
	for _, v := range u.Volumes {
		got = append(got, fmt.Sprint(v.PV == pvName(int(v.ID-first)), " ", v.Claim, " ", v.Inodes, " ", v.Limit.Bytes>>30))
	}
	if want := []string{"true data 2 1", "true data 2 1", "true data 1 1"}; !slices.Equal(got, want) || u.Records != 3 || u.Taken != 3 || u.Range != 4 || u.Mixed {
		t.Errorf("got %q of %d records, mixed %t, %d of %d projects", got, u.Records, u.Mixed, u.Taken, u.Range)
	}
	if len(u.Others) != 2 || u.Others[0].ID != 0 || u.Others[1] != (quota.Usage{ID: 7, Inodes: 1}) {
		t.Errorf("others are %+v", u.Others)
	}
	giveProject(t, filepath.Join(r.path, r.lookup(t, pvName(1)).Directory, "sub"), quota.Project{ID: last})
	if u, err := r.Usage(t.Context(), r.id); err != nil || u.Taken != 4 {
		t.Errorf("%v, %d projects are taken beside a file that has one of the range", err, u.Taken)
	}
	k.fails = unix.EIO
	if _, err := r.Usage(t.Context(), r.id); !errors.Is(err, unix.EIO) {
		t.Errorf("got %v", err)
	}
	r.SetQuotas(nil)
	if u, err := r.Usage(t.Context(), r.id); err != nil || len(u.Volumes) > 0 {
		t.Errorf("without quotas: %v, %v", err, u)
	}
}

// Files without a project may be others' beside a directory that no record knows, and below the
// filesystem's root.
func TestUsageOfMixedPool(t *testing.T) {
	r, k := onXFS(t)
	for name, path := range map[string]string{"theirs": r.path, "below": r.path + "/below"} {
		must(t, unix.Mkdir(filepath.Join(r.path, name), 0o700))
		if u, err := withQuotas(t, path, &BegunProjects{}, k).Usage(t.Context(), pool.Identity(t, path)); err != nil || !u.Mixed {
			t.Errorf("%s: %v, mixed %t", name, err, u.Mixed)
		}
		must(t, unix.Rename(filepath.Join(r.path, name), r.meta("trash", name)))
	}
}

// throng has millions of projects beside those of the kernel, and counts the requests.
type throng struct {
	*kernel
	requests int
}

func (k *throng) From(root int, from uint32) (some []quota.Usage, err error) {
	if k.requests++; first <= from && from <= last {
		return k.kernel.From(root, from)
	}
	for id := from; id < 2_000_000 && len(some) < 256; id++ {
		some = append(some, quota.Usage{ID: id, Inodes: 1})
	}
	return some, nil
}

// The owner of a volume has given its files millions of projects: what volumes take is read all the
// same, and what is read of the others is bounded.
func TestUsageInAThrong(t *testing.T) {
	r, k := onXFS(t)
	r.limited(t, pv)
	many := *r.quotas.Load()
	throng := &throng{kernel: k}
	many.Kernel = throng
	r.SetQuotas(&many)
	u, err := r.Usage(t.Context(), r.id)
	if err != nil || len(u.Volumes) != 1 || len(u.Others) > 2*mostOthers+256 || throng.requests > 50 {
		t.Errorf("%v: %d volumes, %d others, %d requests", err, len(u.Volumes), len(u.Others), throng.requests)
	}
}
