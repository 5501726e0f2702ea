package harness

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// Load is claims that come and go, and what is known of each: whether it was created, and whether
// its deletion was begun. All methods may be called from any goroutine.
type Load struct {
	client    kubernetes.Interface
	namespace string
	claim     func(name string) *corev1.PersistentVolumeClaim
	limit     int // claims at once, besides those that are being deleted
	grows     bool

	mu     sync.Mutex
	random *rand.Rand
	number int
	names  []string          // of claims that may be deleted, in any order
	live   map[string]string // name to UID: claims whose deletion was not begun
	uids   map[string]bool   // of all claims that were ever created
	doomed map[string]bool   // UIDs of claims whose deletion was begun, or may have been
	counts counts
}

type counts struct{ created, deleted int }

// NewLoad creates claims in a namespace, up to limit at once. claim makes the object of a claim.
func NewLoad(client kubernetes.Interface, namespace string, limit int, seed uint64, claim func(name string) *corev1.PersistentVolumeClaim) *Load {
	return &Load{
		client: client, namespace: namespace, claim: claim, limit: limit, random: rand.New(rand.NewPCG(seed, 2)),
		live: map[string]string{}, uids: map[string]bool{}, doomed: map[string]bool{},
	}
}

// RunUnpaced creates and deletes claims as fast as the API takes them, until the context ends or
// the API returns an error, which it returns. While full reports true it does nothing.
func (l *Load) RunUnpaced(ctx context.Context, workers int, full func() bool) error {
	var all sync.WaitGroup
	errs := make(chan error, workers)
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				if full() {
					time.Sleep(5 * time.Millisecond)
					continue
				}
				if err := l.deleteOrCreate(); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// deleteOrCreate has no deadline, so that it is known of each claim whether it exists.
func (l *Load) deleteOrCreate() error {
	ctx := context.Background()
	if name := l.victim(); name != "" {
		return l.Delete(ctx, name)
	}
	_, err := l.Create(ctx)
	return err
}

// RunPaced creates so many claims a second until the context ends, and deletes one for each where
// there are enough. Errors of the API do not end it: what exists is read from the API server later
// (Adopt).
func (l *Load) RunPaced(ctx context.Context, rate int) {
	every := time.NewTicker(time.Second / time.Duration(rate))
	defer every.Stop()
	var all sync.WaitGroup
	defer all.Wait()
	atOnce := make(chan struct{}, 8)
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		atOnce <- struct{}{}
		all.Go(func() { l.deleteAndCreate(); <-atOnce })
	}
}

// During is RunPaced while do is done. The counts begin with it.
func (l *Load) During(ctx context.Context, rate int, do func()) {
	ctx, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer end()
	l.ResetCount()
	all.Go(func() { l.RunPaced(ctx, rate) })
	do()
}

// Grow requests more for a claim. One that is not bound yet, or is gone, stays as it is: the API
// refuses it.
func (l *Load) Grow(ctx context.Context) {
	l.mu.Lock()
	name := ""
	if len(l.names) > 0 {
		name = l.names[l.random.IntN(len(l.names))]
	}
	size := 2 + l.random.IntN(2)
	l.mu.Unlock()
	patch := fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":"%dMi"}}}}`, size)
	_, _ = l.client.CoreV1().PersistentVolumeClaims(l.namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
}

// deleteAndCreate is not ended with the load.
func (l *Load) deleteAndCreate() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if name := l.victim(); name != "" {
		_ = l.Delete(ctx, name)
	}
	_, _ = l.Create(ctx)
	if l.grows {
		l.Grow(ctx)
	}
}

// Growing has the load request more for a claim with each one that it creates. Their classes have
// to allow it.
func (l *Load) Growing() { l.grows = true }

// Create creates a claim.
func (l *Load) Create(ctx context.Context) (*corev1.PersistentVolumeClaim, error) {
	l.mu.Lock()
	l.number++
	claim := l.claim(fmt.Sprintf("c%06d", l.number))
	l.mu.Unlock()
	claims := l.client.CoreV1().PersistentVolumeClaims(l.namespace)
	var made *corev1.PersistentVolumeClaim
	tries := 0
	err := Patiently(func() (err error) {
		tries++
		made, err = claims.Create(ctx, claim, metav1.CreateOptions{})
		return err
	})
	if tries > 1 && apierrors.IsAlreadyExists(err) { // the first one did it
		made, err = claims.Get(ctx, claim.Name, metav1.GetOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("creating a claim: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.created++
	l.uids[string(made.UID)] = true
	l.live[made.Name] = string(made.UID)
	l.names = append(l.names, made.Name)
	return made, nil
}

// Delete deletes a claim and does not wait. A claim that does not exist is no error.
func (l *Load) Delete(ctx context.Context, name string) error {
	err := Patiently(func() error {
		return l.client.CoreV1().PersistentVolumeClaims(l.namespace).Delete(ctx, name, metav1.DeleteOptions{})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting claim %s: %w", name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.deleted++
	return nil
}

// Patiently makes a request again that the API server had no time for, as it may happen within an
// hour on a busy machine.
func Patiently(ask func() error) error {
	return retry.OnError(wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 8}, func(err error) bool {
		return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
			apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
	}, ask)
}

// End deletes a claim that exists and does not wait.
func (l *Load) End(ctx context.Context, name string) error {
	l.mu.Lock()
	if i := slices.Index(l.names, name); i >= 0 {
		l.condemn(i)
	}
	l.mu.Unlock()
	return l.Delete(ctx, name)
}

// victim takes one of the claims, bound or not, if there are enough of them: often the last that
// was created.
func (l *Load) victim() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.names) < l.limit {
		return ""
	}
	i := l.random.IntN(len(l.names))
	if l.random.IntN(3) == 0 {
		i = len(l.names) - 1
	}
	return l.condemn(i)
}

func (l *Load) condemn(i int) string {
	name := l.names[i]
	l.names[i] = l.names[len(l.names)-1]
	l.names = l.names[:len(l.names)-1]
	l.doomed[l.live[name]] = true
	delete(l.live, name)
	return name
}

// DeleteAll deletes every claim that exists, kept ones too, and does not wait.
func (l *Load) DeleteAll(ctx context.Context) error {
	l.mu.Lock()
	l.names = slices.Collect(maps.Keys(l.live))
	l.mu.Unlock()
	for {
		l.mu.Lock()
		if len(l.names) == 0 {
			l.mu.Unlock()
			return nil
		}
		name := l.condemn(0)
		l.mu.Unlock()
		if err := l.Delete(ctx, name); err != nil {
			return err
		}
	}
}

// Keep keeps every claim that exists from being deleted, until DeleteAll.
func (l *Load) Keep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = nil
}

// Adopt makes these claims the ones that exist: some requests got no response, and a restored API
// server has forgotten some claims and remembers others.
func (l *Load) Adopt(claims []corev1.PersistentVolumeClaim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names, l.live = nil, map[string]string{}
	for _, claim := range claims {
		uid := string(claim.UID)
		l.uids[uid] = true
		if claim.DeletionTimestamp == nil && !l.doomed[uid] {
			l.names = append(l.names, claim.Name)
			l.live[claim.Name] = uid
		}
	}
}

// Live returns the UIDs of the claims whose deletion was not begun, by name.
func (l *Load) Live() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.live)
}

// UIDs returns those of all claims that were ever created.
func (l *Load) UIDs() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.uids))
}

// Doomed reports whether the deletion of a claim was begun, or may have been.
func (l *Load) Doomed(uid string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.doomed[uid]
}

// Count returns the claims that were created and deleted since ResetCount.
func (l *Load) Count() (created, deleted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts.created, l.counts.deleted
}

// ResetCount begins the counts anew.
func (l *Load) ResetCount() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts = counts{}
}
