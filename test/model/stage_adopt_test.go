package model

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// What the stage has for volumes of another provisioner, and for calls of adopt.

// adopter makes the calls of adopt on the first node. Each is a process beside the daemon, with
// doors of its own.
type adopter struct {
	*machine
	kubeconfigFile string
	child          *process.Child // of the last call, nil for none
	output         *bytes.Buffer  // of it
	last           adoption       // what it was to do
}

func newAdopter(on *machine) *adopter {
	on.Helper()
	a := &adopter{machine: &machine{stage: on.stage, number: on.number, name: on.name, daemon: on.daemon, doors: &doors{}}}
	dir := hosttest.Dir(on)
	a.kubeconfigFile = filepath.Join(dir, "kubeconfig")
	a.connected(dir, &front{doors: a.doors, named: nameForAdopt, node: on.name, each: true})
	return a
}

// nameForAdopt is the name of a request of adopt in the model, with the real name of its volume.
func nameForAdopt(r *http.Request) string {
	name, one := strings.CutPrefix(r.URL.Path, volumesPath+"/")
	switch {
	case one && r.Method == http.MethodPatch:
		return op{kind: markVolume}.verb() + " " + name
	case one && r.Method == http.MethodGet:
		return op{kind: getVolume}.verb() + " " + name
	case r.URL.Path == volumesPath && r.Method == http.MethodGet:
		return op{kind: listVolumes}.verb()
	}
	if _, claim, of := strings.Cut(r.URL.Path, "/persistentvolumeclaims/"); of && r.Method == http.MethodGet {
		return op{kind: getClaim}.verb() + " " + claim
	}
	return ""
}

// play lets a call do what it did in the model, or begins one.
func (a *adopter) play(before state, m move, after state, then string) error {
	switch {
	case before.adopter == 0:
		if err := a.begins(m.what); err != nil {
			return err
		}
	default:
		dies := strings.Contains(m.what, "is killed")
		err := a.does(m, a.asked(&before), dies, before, after)
		if dies {
			a.dies()
		}
		if err != nil {
			return err
		}
	}
	if err := a.agree(after); err != nil || after.adopter != 0 && slow[then] {
		return err
	}
	a.tell()
	if after.adopter == 0 {
		return a.ends()
	}
	return a.comesTo(a.asked(&after), after)
}

// asked is what the call is about to do.
func (a *adopter) asked(s *state) op { return a.worker.tree.place(s.adopter).asks }

// begins starts a call.
func (a *adopter) begins(what string) (err error) {
	a.last = adoption(slices.Index(adoptionWords[:], what))
	cmd := a.daemon.Command(append(a.last.words(), "--kubeconfig", a.kubeconfigFile)...)
	cmd.Env = append(cmd.Env, a.killer.Env(rig.Binary())...)
	a.output = &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = a.output, a.output
	a.child, err = process.Start(cmd)
	return err
}

// words are the subcommand's.
func (call adoption) words() []string {
	words := []string{"adopt", poolNames[nodePool]}
	if call == givesUp {
		words = append(words, "--undo")
	}
	return words
}

// ends waits until the call has ended by itself.
func (a *adopter) ends() error {
	for ctx := a.soon(); ctx.Err() == nil; a.pause() {
		if !a.child.Running() {
			return nil
		}
		if a.idle != nil {
			a.passes(*a.idle)
		}
	}
	return fmt.Errorf("%w to the end of adopt; waiting: %q", errElsewhere, a.doors.names())
}

// dies ends a call that is under way: what is not played to its end has ended there. Of no adopter
// there is none.
func (a *adopter) dies() {
	if a == nil || a.child == nil {
		return
	}
	_ = a.child.Kill()
	a.tell()
	a.doors.disallow()
}

// settles ends a call that is under way. What one that was killed left half written the daemon
// finds when it compares its records with the API server's objects, which it does when it starts,
// and every ten minutes.
func (a *adopter) settles() {
	if a == nil {
		return
	}
	a.Helper()
	a.dies()
	a.daemon.Kill()
	a.Must(a.start())
}

// unadopted has adopt called once more, and adopt --undo, in a world that has settled: what the
// order called last first. It returns which invariant of what there is then does not hold.
func (a *adopter) unadopted(settled state) (wrong string) {
	if a == nil {
		return ""
	}
	calls := slices.Clone(adoptionSettlements)
	if a.last == givesUp {
		slices.Reverse(calls)
	}
	for _, i := range calls {
		out, code := a.daemon.Call(i.after.words()...)
		if code < 0 {
			return out
		}
		if wrong := a.staysWrong(i, settled); wrong != "" {
			return fmt.Sprintf("%s, after it told:\n%s", wrong, out)
		}
	}
	return ""
}

// staysWrong is what an invariant says of the real world until it holds, or for long.
func (a *adopter) staysWrong(i adoptionSettlement, s state) (wrong string) {
	for ctx := a.soon(); ctx.Err() == nil; a.pause() {
		seen := hosttest.Need(a.seen(s))(a)
		s.api, s.disks = seen.api, seen.disks
		if wrong = a.worker.ofCells(&s, []invariant{i.invariant}, noPart); wrong == "" {
			return ""
		}
	}
	return wrong
}

// madeBy has a class be the other provisioner's, where claims are that.
func (st *stage) madeBy(c *storagev1.StorageClass) {
	if st.first.daemons[0].peer {
		c.Provisioner = plan.Kubevirt
	}
}

// peerMakes does what kubevirt's provisioner does for a claim.
func (st *stage) peerMakes(_ state, cell int) error {
	c, err := st.claimOf(cell / lives)
	if err != nil {
		return err
	}
	on, name := st.machines[0], st.real(cell)
	if err := os.Mkdir(filepath.Join(on.root(), name), 0o777); err != nil {
		return err
	}
	_, err = st.Client().CoreV1().PersistentVolumes().Create(st.Ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			plan.ProvisionedBy: plan.Kubevirt, plan.HostPathIdentity: plan.Kubevirt, plan.ProvisionOnNode: on.name,
		}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: c.Spec.Resources.Requests, AccessModes: c.Spec.AccessModes, StorageClassName: st.class,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(st.mount, name)}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{on.name}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	return err
}

// peerRemoves does what it does with a volume that is released.
func (st *stage) peerRemoves(_ state, cell int) error {
	name := st.real(cell)
	return errors.Join(
		os.RemoveAll(filepath.Join(st.machines[0].root(), name)),
		st.Client().CoreV1().PersistentVolumes().Delete(st.Ctx, name, metav1.DeleteOptions{}),
	)
}
