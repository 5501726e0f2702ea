package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

const (
	churnFor   = 40 * time.Second
	churnStays = 100 // claims between the one that comes and the one that goes
)

// churnRates are how many claims a second come, if the machine has the processors for it.
var churnRates = []int{20, 100}

// churn lets claims come to one node and go again, and counts what its daemon sends to tell the
// scheduler of it: no more when more claims come.
func (f *fleet) churn(ctx context.Context) {
	m := f.member("churn", "1g")
	f.Must(f.Cluster.AddHost(ctx, m.node, nil), "adding a node")
	f.Must(f.WriteKubeconfig(ctx, m.node, m.Path("kubeconfig")), "writing a kubeconfig")
	f.Must(m.Start(), "starting a daemon")
	ready, cancel := soon(ctx)
	defer cancel()
	f.Must(m.WaitReady(ready, 1), "waiting for a daemon")
	for _, rate := range churnRates {
		f.count(ctx, afterLess)
		f.churnAt(ctx, m.node, rate)
	}
}

func (f *fleet) churnAt(ctx context.Context, node string, rate int) {
	f.Say("%d claims a second come to one node and go, for %s", rate, churnFor)
	began := time.Now()
	claims := f.comeAndGo(ctx, node, rate)
	seconds := time.Since(began).Seconds()
	all, err := f.audit.Take()
	f.Must(err, "reading the audit log")
	got := all[node]
	f.Say("  %d requests: %s", got.Total(), got)
	published := 0
	for what, n := range got {
		if strings.Contains(what, " csistoragecapacities") || strings.Contains(what, " csidrivers") {
			published += n
		}
	}
	made, removed := got.Of("create persistentvolumes", ""), got.Of("delete persistentvolumes", "")
	f.Say("  %.1f claims a second came, %.1f volumes were made, %.1f removed", float64(claims)/seconds, float64(made)/seconds, float64(removed)/seconds)
	if made == 0 || published == 0 {
		f.Fault("nothing was measured", "%d volumes were made, and %d requests published what the node has", made, published)
	}
	f.limit("requests a second and node to publish capacity", float64(published)/seconds, 1)
}

// comeAndGo creates and deletes claims of a node at an even rate, and returns how many there were.
func (f *fleet) comeAndGo(ctx context.Context, node string, rate int) (claims int) {
	api := f.Client.CoreV1().PersistentVolumeClaims(f.Namespace)
	name := func(i int) string { return fmt.Sprintf("churn-%d-%d", rate, i) }
	var all sync.WaitGroup
	tick, end := time.NewTicker(time.Second/time.Duration(rate)), time.After(churnFor)
	defer tick.Stop()
	for slots := make(chan struct{}, 32); ; claims++ {
		select {
		case <-ctx.Done():
			return claims
		case <-end:
			all.Wait()
			return claims
		case <-tick.C:
		}
		slots <- struct{}{}
		i := claims
		all.Go(func() {
			defer func() { <-slots }()
			claim := cluster.Claim(f.Namespace, name(i), className(wait), "1Mi")
			claim.Annotations = map[string]string{selectedNode: node}
			_, err := api.Create(ctx, claim, metav1.CreateOptions{})
			f.Blame("claims that could not be made", err)
			if i >= churnStays {
				f.Blame("claims that could not be deleted", api.Delete(ctx, name(i-churnStays), metav1.DeleteOptions{}))
			}
		})
	}
}
