package model

import (
	"errors"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	daemonstatus "github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
)

// What a daemon does about the lease of a shared pool, for real. That it renews its term is let
// through, but while the other daemon is to take the lease: it does so when it has heard nothing of
// it for long.

// leaseIs is the lease as the API server has it, nil for none.
func (st *stage) leaseIs() (*leadership.Lease, error) {
	l, err := st.Client().CoordinationV1().Leases(ownNamespace).Get(st.Ctx, leadership.Name(st.Provisioner, poolNames[sharedPool]), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return kube.LeaseOf(l), err
}

// renews reports whether a write leaves the term of the lease as it is.
func (on *machine) renews(l *coordinationv1.Lease) bool {
	now, err := on.leaseIs()
	if err != nil || now == nil {
		return false
	}
	then := kube.LeaseOf(l)
	return then.Holder == now.Holder && then.Term.Token == now.Term.Token
}

// aboutLease reports whether a move is one between a daemon and the lease.
func aboutLease(m move) bool {
	return m.event < 0 && m.op.kind == ended && strings.HasSuffix(strings.SplitN(m.what, ",", 2)[0], "the lease")
}

// elects lets a daemon do about the lease what it did in the model.
func (on *machine) elects(before, after state) error {
	on.looking.Store(true)
	defer on.looking.Store(false)
	switch is := after.lease; {
	case is.holder == 0 && before.lease.holder != 0:
		return on.writesLease(func(now *leadership.Lease) bool { return now != nil && now.Holder == "" })
	case !after.holds(on.number) || before.holds(on.number):
		return on.hasHeard(is)
	case is.reporter:
		return errors.New("this is not played on a real daemon")
	}
	term, err := on.leaseIs()
	if err != nil {
		return err
	}
	return on.writesLease(func(now *leadership.Lease) bool {
		return now != nil && leadership.NodeOf(now.Holder) == on.name && (term == nil || now.Term.Token != term.Term.Token)
	})
}

// holds reports whether a daemon holds the lease, and knows it.
func (s *state) holds(node int) bool {
	d := &s.daemons[node]
	return d.elector.term != 0 && d.elector.term == s.lease.token && s.lease.holder == holderOf(node, d.boot)
}

// writesLease lets a daemon write the lease, and no other daemon, until it is as it is to be.
func (on *machine) writesLease(done func(*leadership.Lease) bool) error {
	for _, other := range on.machines {
		other.mute.Store(other != on)
	}
	defer on.unmuted()
	for ctx := on.soonTaken(); ctx.Err() == nil; on.pause() {
		if now, err := on.leaseIs(); err != nil || done(now) {
			return err
		}
		on.letLease()
	}
	return fmt.Errorf("%w to write the lease; waiting: %q", errElsewhere, on.waiting())
}

// unmuted lets the other daemons go on with the lease. What they sent before is refused, because
// the lease was changed since.
func (on *machine) unmuted() {
	for _, other := range on.machines {
		other.mute.Store(false)
		other.letLease()
	}
}

// letLease lets requests through that write the lease.
func (on *machine) letLease() {
	for w := on.find(isTaking); w != nil; w = on.find(isTaking) {
		on.doors.let(w, passage{})
		close(w.told)
	}
}

func isTaking(name string) bool { return name == takesLease }

// hasHeard waits until a daemon knows who leads.
func (on *machine) hasHeard(l lease) error {
	if l.holder == 0 || l.reporter {
		return nil
	}
	leads := on.machines[(l.holder-1)/2].name
	for ctx := on.soonTaken(); ctx.Err() == nil; on.pause() {
		s, err := daemonstatus.ReadStatus(on.daemon.Path("run"))
		if err == nil && len(s.Pools) == 1 && s.Pools[0].Worker == leads {
			return nil
		}
	}
	return fmt.Errorf("%w to know that %s leads", errElsewhere, leads)
}
