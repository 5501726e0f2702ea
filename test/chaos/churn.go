package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/scene"
)

// churn makes and deletes claims at a steady pace, at the API server itself, not through the proxy.
// What it is answered does not matter: a server that is away is asked again, and what exists is read
// from the server in the end.
type churn struct {
	scene *scene.Scene
	rate  int
	limit int

	mu            sync.Mutex
	random        *rand.Rand
	number        int
	names         []string          // of claims that nobody asked to delete, in any order
	uids          map[string]string // by name, of all that were ever made
	doomed        map[string]bool   // UIDs that were asked to be deleted, or may have been
	made, deleted int               // since the last count
}

func newChurn(s *scene.Scene, rate, limit int, seed uint64) *churn {
	return &churn{
		scene: s, rate: rate, limit: limit, random: rand.New(rand.NewPCG(seed, 2)),
		uids: map[string]string{}, doomed: map[string]bool{},
	}
}

// run works until the context ends. A step is not ended in its middle.
func (c *churn) run(ctx context.Context) {
	every := time.NewTicker(time.Second / time.Duration(c.rate))
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
		all.Go(func() { c.step(); <-atOnce })
	}
}

// step makes a claim, and deletes one if there are too many.
func (c *churn) step() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if name := c.victim(); name != "" {
		c.remove(ctx, name)
	}
	c.make(ctx)
}

func (c *churn) make(ctx context.Context) {
	c.mu.Lock()
	c.number++
	claim := cluster.Claim(c.scene.Namespace, fmt.Sprintf("c%06d", c.number), c.scene.Class, "1Mi")
	c.mu.Unlock()
	if c.scene.Scope == plan.ScopeNode {
		claim.Annotations = map[string]string{plan.ProvisionOnNode: c.scene.Name}
	}
	made, err := c.scene.Client.CoreV1().PersistentVolumeClaims(c.scene.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made++
	c.uids[made.Name] = string(made.UID)
	c.names = append(c.names, made.Name)
}

// victim takes one of the claims off the living, bound or not, often one that was made just now.
func (c *churn) victim() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.names) < c.limit {
		return ""
	}
	i := c.random.IntN(len(c.names))
	if c.random.IntN(3) == 0 {
		i = len(c.names) - 1
	}
	name := c.names[i]
	c.names[i] = c.names[len(c.names)-1]
	c.names = c.names[:len(c.names)-1]
	c.doomed[c.uids[name]] = true
	return name
}

func (c *churn) remove(ctx context.Context, name string) {
	err := c.scene.Client.CoreV1().PersistentVolumeClaims(c.scene.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err == nil {
		c.mu.Lock()
		c.deleted++
		c.mu.Unlock()
	}
}

// adopt makes what the server has the claims that there are: some calls were not answered, and a
// restored server has forgotten some claims and remembers others.
func (c *churn) adopt(claims []corev1.PersistentVolumeClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = nil
	for _, claim := range claims {
		c.uids[claim.Name] = string(claim.UID)
		if claim.DeletionTimestamp == nil && !c.doomed[string(claim.UID)] {
			c.names = append(c.names, claim.Name)
		}
	}
}

// isDoomed says whether the deletion of a claim was begun.
func (c *churn) isDoomed(uid string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doomed[uid]
}

// all are the UIDs of all claims that were ever made.
func (c *churn) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.uids))
}

// living are the UIDs of the claims that nobody asked to delete.
func (c *churn) living() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]bool{}
	for _, name := range c.names {
		all[c.uids[name]] = true
	}
	return all
}

// moved says whether claims were made and deleted since the last count.
func (c *churn) moved() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made > 0 && c.deleted > 0
}

// madeSince is the claims made since the last count.
func (c *churn) madeSince() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made
}

// count is the claims made and deleted since it was asked last.
func (c *churn) count() (made, deleted int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	made, deleted = c.made, c.deleted
	c.made, c.deleted = 0, 0
	return made, deleted
}
