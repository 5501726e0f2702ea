package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// provisionOnNode is the annotation that names a claim's node.
const provisionOnNode = "kubevirt.io/provisionOnNode"

// goingMax is how many claims may be deleted and not gone yet. Kubernetes lets them go one after the
// other, more slowly than they can be deleted: without a bound, ten minutes of storm left a queue of
// fourteen thousand.
const goingMax = 400

// churn creates and deletes claims as fast as the API takes them.
type churn struct {
	client    kubernetes.Interface
	namespace string
	class     string
	node      string
	limit     int        // claims at once, besides those that are going
	existing  func() int // claims, also those

	created, deleted atomic.Int64

	mu     sync.Mutex
	number int
	live   map[string]string // name to UID: claims that exist and that nobody asked to delete
	names  []string          // of live, in any order
	doomed map[string]bool   // UIDs that were asked to be deleted, until their volume is gone
}

func newChurn(client kubernetes.Interface, namespace, class, node string, limit int) *churn {
	return &churn{
		client: client, namespace: namespace, class: class, node: node, limit: limit,
		live: map[string]string{}, doomed: map[string]bool{},
	}
}

// run works until the context ends; an error of the API ends it, too.
func (c *churn) run(ctx context.Context, workers int) error {
	var all sync.WaitGroup
	errs := make(chan error, workers)
	for i := range workers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for ctx.Err() == nil {
				if c.existing() > c.limit+goingMax {
					time.Sleep(5 * time.Millisecond)
					continue
				}
				if err := c.step(random); err != nil {
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

// step is not ended in the middle, so that it is known of every claim whether it exists.
func (c *churn) step(random *rand.Rand) error {
	ctx := context.Background()
	if name := c.victim(random); name != "" {
		return c.remove(ctx, name)
	}
	_, err := c.make(ctx)
	return err
}

func (c *churn) make(ctx context.Context) (*corev1.PersistentVolumeClaim, error) {
	c.mu.Lock()
	c.number++
	claim := cluster.Claim(c.namespace, fmt.Sprintf("c%06d", c.number), c.class, "1Mi")
	c.mu.Unlock()
	claim.Annotations = map[string]string{provisionOnNode: c.node}
	made, err := c.client.CoreV1().PersistentVolumeClaims(c.namespace).Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating a claim: %w", err)
	}
	c.created.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live[made.Name] = string(made.UID)
	c.names = append(c.names, made.Name)
	return made, nil
}

// victim takes one of the claims off the living, bound or not, if there are enough of them.
func (c *churn) victim(random *rand.Rand) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.names) < c.limit {
		return ""
	}
	i := random.IntN(len(c.names))
	if random.IntN(3) == 0 {
		i = len(c.names) - 1 // one that was created just now
	}
	return c.condemn(i)
}

func (c *churn) condemn(i int) string {
	name := c.names[i]
	c.names[i] = c.names[len(c.names)-1]
	c.names = c.names[:len(c.names)-1]
	c.doomed[c.live[name]] = true
	delete(c.live, name)
	return name
}

func (c *churn) remove(ctx context.Context, name string) error {
	err := c.client.CoreV1().PersistentVolumeClaims(c.namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting claim %s: %w", name, err)
	}
	c.deleted.Add(1)
	return nil
}

// removeAll deletes what is left.
func (c *churn) removeAll(ctx context.Context) error {
	for {
		c.mu.Lock()
		if len(c.names) == 0 {
			c.mu.Unlock()
			return nil
		}
		name := c.condemn(0)
		c.mu.Unlock()
		if err := c.remove(ctx, name); err != nil {
			return err
		}
	}
}

// keepAll keeps every claim that exists from being deleted, until keepNothing.
func (c *churn) keepAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = nil
}

func (c *churn) keepNothing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = slices.Collect(maps.Keys(c.live))
}

// survivors are the UIDs of the claims that exist, by name.
func (c *churn) survivors() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string]string, len(c.live))
	for name, uid := range c.live {
		all[name] = uid
	}
	return all
}

// isDoomed says whether the deletion of a claim was begun.
func (c *churn) isDoomed(uid string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doomed[uid]
}

func (c *churn) forget(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.doomed, uid)
}
