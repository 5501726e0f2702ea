package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/retry"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// load turns claims into volumes and both into nothing. What happens next to a claim is begun by
// the event of its volume: there, it is bound and released; gone, the next claim is made.
//
// It is the scheduler and kube-controller-manager as well, whose own binder takes 25 s for a claim
// when 200 of them are under way.
type load struct {
	*environment
	tokens chan struct{} // a token for each claim that may exist
	work   sync.WaitGroup

	mu   sync.Mutex
	errs []error
	gone int
	full chan struct{} // closed when that many are gone
	want int
}

func newLoad(e *environment, live int) *load {
	return &load{environment: e, tokens: make(chan struct{}, live), full: make(chan struct{})}
}

// timeout is how long nothing may happen at all.
const timeout = 2 * time.Minute

// run makes and deletes n claims, and returns when their volumes are gone.
func (l *load) run(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.want = n
	stuck := time.AfterFunc(timeout, func() { cancel(fmt.Errorf("nothing happened for %s", timeout)) })
	defer stuck.Stop()
	volumes := l.Client.CoreV1().PersistentVolumes()
	none, err := volumes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	// The API server ends a watch whose reader is slow; this one goes on where that was.
	source := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return volumes.Watch(ctx, o)
	}}
	events, err := watchtools.NewRetryWatcherWithContext(ctx, none.ResourceVersion, source)
	if err != nil {
		return err
	}
	defer events.Stop()
	go l.follow(ctx, events, func() { stuck.Reset(timeout) }, cancel)
	for i := range n {
		select {
		case l.tokens <- struct{}{}:
			l.work.Go(func() { l.note(l.make(ctx, i)) })
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	select {
	case <-l.full:
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), l.trouble())
	}
	l.work.Wait()
	return l.trouble()
}

// make makes a claim that the daemon may provision at once.
func (l *load) make(ctx context.Context, i int) error {
	return patiently(func() error {
		_, err := l.claims().Create(ctx, l.claim(fmt.Sprintf("c%06d", i)), metav1.CreateOptions{})
		return err
	}, apierrors.IsAlreadyExists)
}

func (l *load) claims() clientcorev1.PersistentVolumeClaimInterface {
	return l.Client.CoreV1().PersistentVolumeClaims(l.Namespace)
}

func (l *load) claim(claim string) *corev1.PersistentVolumeClaim {
	c := cluster.Claim(l.Namespace, claim, name, "1Mi")
	c.Annotations = map[string]string{plan.SelectedNode: l.Node, plan.StorageProvisioner: l.Node}
	return c
}

// patiently makes a request again that the API server had no time for, as it may happen within an
// hour on a busy machine. done is what it returns if it had done it nevertheless.
func patiently(ask func() error, done func(error) bool) error {
	err := retry.OnError(wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 8}, busy, ask)
	if err != nil && done(err) {
		return nil
	}
	return err
}

func busy(err error) bool {
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}

func never(error) bool { return false }

func (l *load) follow(ctx context.Context, events watch.Interface, alive func(), end context.CancelCauseFunc) {
	doomed := map[string]bool{} // volumes whose claim was deleted
	for event := range events.ResultChan() {
		pv, is := event.Object.(*corev1.PersistentVolume)
		if !is {
			end(fmt.Errorf("the watch of volumes ended: %v", event.Object))
			return
		}
		alive()
		switch {
		case event.Type == watch.Deleted:
			delete(doomed, pv.Name)
			<-l.tokens
			l.count()
		case event.Type == watch.Added && !doomed[pv.Name]:
			doomed[pv.Name] = true
			l.work.Go(func() { l.note(l.use(ctx, pv)) })
		}
	}
	if ctx.Err() == nil {
		end(errors.New("the watch of volumes ended"))
	}
}

// use binds a volume, writes into it, as two of three pods would, deletes its claim and releases
// it. Whole objects are written: a patch costs the API server more than the rest.
func (l *load) use(ctx context.Context, pv *corev1.PersistentVolume) error {
	claim := l.claim(pv.Spec.ClaimRef.Name)
	claim.UID, claim.Spec.VolumeName = pv.Spec.ClaimRef.UID, pv.Name
	err := patiently(func() error {
		_, err := l.claims().Update(ctx, claim, metav1.UpdateOptions{})
		return err
	}, never)
	if err != nil {
		return err
	}
	if pv.UID[0]%3 != 0 {
		if err := os.WriteFile(l.storage.Path(pv.Name, "data"), []byte(pv.Name), 0o600); err != nil {
			return err
		}
	}
	err = patiently(func() error { return l.claims().Delete(ctx, claim.Name, metav1.DeleteOptions{}) }, apierrors.IsNotFound)
	if err != nil {
		return err
	}
	pv.Status.Phase, pv.ResourceVersion = corev1.VolumeReleased, ""
	return patiently(func() error {
		_, err := l.Client.CoreV1().PersistentVolumes().UpdateStatus(ctx, pv, metav1.UpdateOptions{})
		return err
	}, apierrors.IsNotFound)
}

func (l *load) count() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone++; l.gone == l.want {
		close(l.full)
	}
}

func (l *load) note(err error) {
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.errs = append(l.errs, err)
	}
}

func (l *load) trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
}
