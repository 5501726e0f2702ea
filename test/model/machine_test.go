package model

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/crash/killer"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// machine is a node of a stage, with its daemon. Of two of them each has its own mount namespace,
// as a host has.
type machine struct {
	*stage
	number    int
	name      string              // of its Node object
	namespace *hosttest.Namespace // nil: that of this process
	daemon    *rig.Daemon
	killer    *killer.Killer
	front     *front
	doors     *doors
	untold    *waiter // whose response the daemon has not got yet, nil for none
	idle      *call   // that it makes or has made, of which nothing is left that changes what is compared, nil for none

	mute    atomic.Bool // it does not renew its term
	looking atomic.Bool // it may read the lease, which is no step then
}

// newMachine makes everything up to a daemon that is about to start.
func newMachine(st *stage, number int) *machine {
	st.Helper()
	on := &machine{stage: st, number: number, name: st.Namespace + "-" + nodeName(number), doors: &doors{}}
	if st.first.daemons[1].exists {
		on.namespace = hosttest.NewNamespace(st, "mount -t tmpfs node /run/hostpath-provisioner")
		if st.pool == everyPool {
			on.mounts()
			on.namespace.Run("chmod", "0700", st.mount)
		}
	}
	st.Must(st.plane.AddHost(st.Ctx, on.name, nil))
	dir := hosttest.Dir(st)
	on.connected(dir, &front{doors: on.doors, named: on.named, node: on.name})
	on.prepared(dir)
	return on
}

// connected has a process make its system calls and send its requests through the doors. Its
// kubeconfig is in dir.
func (on *machine) connected(dir string, f *front) {
	on.Helper()
	on.held(dir)
	on.front = f
	f.breaks(false)
	address, authority := on.Proxied(func(server http.Handler) http.Handler { f.server = server; return f })
	proxiedKubeconfig(on.Environment, filepath.Join(dir, "kubeconfig"), address, authority)
}

// held has the system calls wait by which the daemon changes a volume's files.
func (on *machine) held(dir string) {
	on.Helper()
	var err error
	on.killer, err = killer.New(filepath.Join(dir, "killer"), killer.Scope{Pool: on.mount, Exact: true})
	on.Must(err)
	on.Cleanup(func() { _ = on.killer.Close() })
	on.killer.Hold(on.hold)
}

// prepared configures the daemon and prepares its pool, in which there is a directory of people.
func (on *machine) prepared(dir string) {
	on.Helper()
	self, err := os.Executable() // nsenter may be between this process and that
	on.Must(err)
	o := rig.Options{Binary: self, Env: on.killer.Env(rig.Binary()), Dir: dir, Config: on.config(dir, setting{})}
	if on.namespace != nil {
		o.Wrap = on.namespace.Enter()
	}
	on.daemon = on.Daemon(on.name, poolNames[on.pool], o)
	if !on.first.mounted[on.number][on.pool] {
		on.unmounts() // it was there once
	}
	people := filepath.Join(on.root(), "people")
	on.Must(os.MkdirAll(people, 0o700))
	on.Must(os.WriteFile(filepath.Join(people, "data"), []byte(byPeople), 0o600))
}

// root is the pool's directory as this process reaches it.
func (on *machine) root() string {
	if on.pool == everyPool {
		return on.namespace.Path(on.mount)
	}
	return on.mount
}

// mounts mounts the pool's filesystem. That of a shared pool is mounted beside this namespace, too.
func (on *machine) mounts() {
	on.Helper()
	switch {
	case on.namespace == nil:
		on.images[0].Mount(on, on.mount)
	case on.pool != everyPool:
		on.namespace.Run("mount", hosttest.Run(on, "findmnt", "--noheadings", "--output", "SOURCE", on.mount), on.mount)
	default:
		image := on.images[on.number]
		on.namespace.Run("mount", "-t", image.Type, "-o", "loop", image.File, on.mount)
	}
}

// unmounts takes the pool's filesystem away.
func (on *machine) unmounts() {
	on.Helper()
	if on.namespace == nil {
		hosttest.Unmount(on, on.mount)
		return
	}
	on.Unmounts(on.name, on.namespace, on.mount)
}

// config is the daemon's configuration in dir.
func (on *machine) config(dir string, of setting) string {
	provisioner, aliases := on.Provisioner, ""
	if of.names != ownName {
		provisioner = otherName
	}
	if of.names == aliased {
		aliases = fmt.Sprintf("aliases = [%q]\n", on.Provisioner)
	}
	if of.peer {
		aliases = fmt.Sprintf("aliases = [%q]\n", plan.Kubevirt)
	}
	text := fmt.Sprintf("provisioner = %q\n%snode = %q\nkubeconfig = %q\nmetrics = \"\"\n[pool.%s]\npath = %q\nscope = %q\n",
		provisioner, aliases, on.name, filepath.Join(dir, "kubeconfig"), poolNames[on.pool], on.mount, of.configured(on.pool).Scope)
	if of.pattern {
		text += fmt.Sprintf("directory = %q\n", otherPattern+"{{.PV}}")
	}
	if of.archive {
		text += "on_delete = \"archive\"\n"
	}
	if on.first.clones {
		text += "clones = \"copy\"\n"
	}
	if on.first.snapshots {
		text += "snapshots = \"copy\"\n"
	}
	if of.room > 0 {
		text += fmt.Sprintf("reserve = \"%dMi\"\n", on.reserve(of.room))
	}
	return text
}

// start starts the daemon and waits until it has read the API.
func (on *machine) start() error {
	if err := on.daemon.Start(); err != nil {
		return err
	}
	return on.daemon.WaitReady(on.Soon(), 1)
}

// diskCall begins the names of system calls.
const diskCall = "on the disk: "

// hold lets a system call wait that changes a volume's files.
func (on *machine) hold(point string) <-chan struct{} {
	if !killer.VolumeName.MatchString(point) || strings.HasPrefix(point, "fsync ") {
		return nil
	}
	if w := on.doors.arrive(diskCall + point); w != nil {
		return w.through
	}
	return nil
}

// hostID is what the daemon's files have in their names in a shared pool.
func (on *machine) hostID() string { return leadership.HostID(on.name) }

// tell lets the daemon have the response to its last request.
func (on *machine) tell() {
	if on.untold != nil {
		close(on.untold.told)
		on.untold = nil
	}
}

// comesTo waits until the daemon is about to do this, as far as it can be held there. A daemon that
// knows that it does not lead does not ask for the lease.
func (on *machine) comesTo(o op, before state) error {
	if o.kind == ended || o.kind == readLease || o.kind == onDisk && on.changesNothing(o.disk, before) {
		return nil
	}
	_, err := on.await(func(name string) bool { return name == waitsAs(o) || o.kind == onDisk && concerns(name, o.disk) })
	return err
}

func (on *machine) changesNothing(c call, before state) bool {
	image := before.disks[storeOf(on.pool, on.number)]
	return on.worker.tree.disks.do(image, c, on.worker.workshop).image == image
}

// onDisk lets system calls through, one by one, until the files are as the model's.
func (on *machine) onDisk(c call, after state) error {
	looks := 0
	for ctx := on.soon(); ctx.Err() == nil; on.pause() {
		if real, err := on.seen(after); err != nil || on.differs(real, after) == "" {
			return err
		}
		on.passes(c)
		looks++
		on.readsAgain(looks)
	}
	return nil // agree tells what differs
}

// await waits until one with such a name waits.
func (on *machine) await(is func(name string) bool) (w *waiter, err error) {
	looks := 0
	for ctx := on.soon(); w == nil; on.pause() {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w to this; waiting: %q", errElsewhere, on.waiting())
		}
		if w = on.find(is); w == nil && on.idle != nil {
			on.passes(*on.idle)
		}
		looks++
		on.readsAgain(looks)
	}
	return w, nil
}

// readsAgain lets through what a daemon reads that does not come to the next step: its work began
// before the model's did, and begins once more with what it reads now.
func (on *machine) readsAgain(looks int) {
	if looks%100 != 0 {
		return
	}
	again := on.find(func(name string) bool {
		return slices.ContainsFunc([]kind{getVolume, getClaim, eachVolume, readTomb, readLease, getContent, getSnapshot}, func(k kind) bool { return strings.HasPrefix(name, op{kind: k}.verb()) })
	})
	if again != nil {
		on.doors.let(again, passage{})
		close(again.told)
	}
}

// errElsewhere: the daemon's work went another way than the model's, as it does where things are at
// the same time.
var errElsewhere = errors.New("the daemon does not come")

// passes lets a system call through that is part of a call.
func (on *machine) passes(c call) {
	if w := on.find(func(name string) bool { return concerns(name, c) }); w != nil {
		on.doors.let(w, passage{})
	}
}

// find returns the first that waits with such a name of the model, nil if none does.
func (on *machine) find(is func(name string) bool) *waiter {
	return on.doors.find(func(name string) bool { return is(on.modelled(name)) })
}

// concerns reports whether a system call may be part of a call of daemon/disk/volume.
func concerns(name string, c call) bool {
	return strings.HasPrefix(name, diskCall) && (c.cell < 0 || strings.Contains(name, nameOf(c.cell)))
}
