package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/overview"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/presence"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/goldenfile"
)

// sick is a cluster in which each node but the first has something else.
type sick struct{ forbidden bool }

const ours = "hostpath-provisioner"

func size(gib uint64) *uint64 { gib <<= 30; return &gib }

func (s sick) EachLease(_ context.Context, visit func(*coordinationv1.Lease)) error {
	of := func(name string, ago time.Duration, reason, message string, pools ...presence.Pool) {
		text, _ := presence.State{Time: noon.Add(-ago), Version: "v0.2.0", Reason: reason,
			Message: message, Pools: pools}.Encode()
		holder := name + "_01234567"
		visit(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: presence.Name(name),
				Annotations: map[string]string{presence.StateKey(ours): text}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder},
		})
	}
	pool := func(name, state, reason, message string, lost int) presence.Pool {
		return presence.Pool{Name: name, State: state, Reason: reason, Message: message, Lost: lost,
			Since: noon.Add(-3 * time.Hour), Volumes: 2, Size: *size(100), Used: size(10),
			UsedEstimate: name == "slow",
			Promised:     size(20), Free: size(70)}
	}
	well := pool("fast", presence.PoolOpen, "", "", 0)
	of("node-a", time.Minute, "", "", well)
	of("node-b", time.Minute, "", "", well,
		pool("slow", presence.PoolClosed, "NotMounted", "/srv/slow is not a mount point", 0))
	of("node-c", 2*time.Hour, "", "", well)
	of("node-d", time.Minute, plan.ReasonNotInForce, "config.toml:3: unknown key", well)
	of("node-e", time.Minute, "", "", pool("fast", presence.PoolCordoned, plan.ReasonCordoned,
		"it is cordoned: no new volumes until it is uncordoned", 1))
	of("node-f", time.Minute, "", "", well)
	of("node-g", time.Minute, "", "", well)
	forged, text := "node-x_1", `{"time":"2026-01-01T00:00:00Z"}`
	visit(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: presence.Name("node-z"),
		Annotations: map[string]string{presence.StateKey(ours): text}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &forged}})
	return nil
}

func (s sick) EachNode(_ context.Context, visit func(*corev1.Node)) error {
	if s.forbidden {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil)
	}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "h"} {
		ready := corev1.ConditionTrue
		if name == "f" {
			ready = corev1.ConditionUnknown
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + name}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		visit(n)
	}
	return nil
}

func (s sick) EachVolume(_ context.Context, visit func(*corev1.PersistentVolume)) error {
	for _, of := range [][4]string{
		{"pvc-1", "shop", "data-0", "node-a"}, {"pvc-2", "shop", "data-1", "node-c"},
		{"pvc-3", "web", "logs", "node-h"}, {"pvc-4", "", "", "node-a"},
		{"pvc-5", "web", "old", "node-i"},
	} {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: of[0],
			Labels:            map[string]string{plan.NodeLabel: of[3], plan.PoolLabel: "fast"},
			Annotations:       map[string]string{plan.ProvisionedBy: ours},
			CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))}}
		pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		pv.Spec.StorageClassName, pv.Spec.PersistentVolumeReclaimPolicy = "fast", "Delete"
		pv.Status.Phase = corev1.VolumeBound
		if of[1] != "" {
			pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: of[1], Name: of[2]}
		}
		visit(pv)
	}
	visit(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "another's"}})
	return nil
}

func (s sick) EachContent(_ context.Context, visit func(*snapshotapi.Content)) error {
	if s.forbidden {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "volumesnapshotcontents"}, "")
	}
	for name, status := range map[string]*snapshotapi.ContentStatus{
		"monday":  {ReadyToUse: new(true), RestoreSize: new(int64(1 << 30))},
		"tuesday": {Error: &snapshotapi.Error{Message: new("pool fast: \x1b[2J")}},
		"today":   nil,
	} {
		visit(&snapshotapi.Content{ObjectMeta: metav1.ObjectMeta{Name: "snapcontent-" + name,
			CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)),
			Annotations:       map[string]string{plan.NodeLabel: "node-a"}},
			Spec: snapshotapi.ContentSpec{Driver: ours,
				SnapshotRef: snapshotapi.SnapshotRef{Namespace: "shop", Name: name}}, Status: status})
	}
	return nil
}

var lists = map[string]func(context.Context, *overview.Overview, looking) columned{
	"nodes": clusterNodes, "pools": clusterPools,
	"volumes": clusterVolumes, "snapshots": clusterSnapshots,
}

// Each list says what it is to, in each form.
func TestOverviewOfASickCluster(t *testing.T) {
	for name, list := range lists {
		for _, output := range []string{"", "wide", "json", "yaml", "name"} {
			t.Run(name+"-"+output, func(t *testing.T) {
				var out bytes.Buffer
				v := overview.Look(t.Context(), overview.Options{Self: plan.Self{Provisioner: ours},
					API: sick{}, Now: noon})
				l := looking{output: output, all: true}
				err := writeColumned(&out, &out, list(t.Context(), v, l), l, v.Unseen)
				if err != nil {
					t.Error(err)
				}
				file := "testdata/overview-" + name + "-" + output + ".txt"
				goldenfile.Compare(t, file, out.String())
			})
		}
	}
}

// Who may not see all is told, and the exit code tells it to programs.
func TestOverviewUnseen(t *testing.T) {
	var out, said bytes.Buffer
	v := overview.Look(t.Context(), overview.Options{Self: plan.Self{Provisioner: ours},
		API: sick{forbidden: true}, Now: noon})
	l := looking{noHeaders: true, of: "shop"}
	list := clusterSnapshots(t.Context(), v, l)
	if err := writeColumned(&out, &said, list, l, v.Unseen); err != errNot || out.Len() > 0 {
		t.Errorf("%v: %s", err, out.String())
	}
	want := "not seen: nodes: this user may not list them\n" +
		"not seen: volumesnapshotcontents: the cluster has no such kind of object\n"
	if said.String() != want {
		t.Errorf("%s\nwant\n%s", said.String(), want)
	}
	for _, n := range v.Nodes(t.Context()) {
		if n.Status == overview.NodeGone || n.Status == overview.NodeNotReady {
			t.Errorf("node %s is %s for who may not read nodes", n.Name, n.Status)
		}
	}
}

func TestOverviewRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"nodes", "x"}, {"nodes", "-n", "x"}, {"pools", "-A"}, {"snapshots", "-o", "jsonpath"},
		{"pool"}, {"pool", "cordon"}, {"pool", "drain", "x"},
	} {
		if code, text := runWith(t, args...); code != exitUsage {
			t.Errorf("%q: exit code %d\n%s", args, code, text)
		}
	}
}

// Who watches sees on the page what is not seen, and why there is nothing.
func TestWatchTellsWhatIsNotSeen(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct {
		err  error
		want string
	}{
		{errNot, "\x1b[H\x1b[2Jnot seen: nodes\n"},
		{errNoDaemon, "\x1b[H\x1b[2Jnot seen: nodes\n" +
			"hostpath-provisioner: the daemon is not running\n"},
	} {
		var page, said bytes.Buffer
		p := &program{stdout: &terminal{to: &page, columns: 80}, stderr: &said}
		err := p.repeated(ended, true, time.Hour, nil, func(_, notes io.Writer) error {
			fmt.Fprintln(notes, "not seen: nodes")
			return c.err
		})
		if err != c.err || page.String() != c.want || said.Len() > 0 {
			t.Errorf("%v: %q, beside it %q", err, page.String(), said.String())
		}
	}
}

// Each list but the wide one fits in a terminal of 80 columns, whatever is in its cells.
func TestOverviewFits(t *testing.T) {
	for name, list := range lists {
		var out bytes.Buffer
		v := overview.Look(t.Context(), overview.Options{Self: plan.Self{Provisioner: ours},
			API: sick{}, Now: noon})
		is := list(t.Context(), v, looking{all: true})
		for _, row := range is.rows {
			for c := range row {
				row[c] = strings.Repeat("long-", 10)
			}
		}
		is.notes = nil
		to := &terminal{to: &out, columns: 80}
		if err := writeColumned(to, to, is, looking{}, nil); err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, " \n")); n > 80 {
				t.Errorf("%s: %d: %s", name, n, line)
			}
		}
	}
}
