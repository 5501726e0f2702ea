package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// floorCommand makes this program the bare client.
const floorCommand = "floor"

// floorWorkers is how many claims it works on at once.
const floorWorkers = 8

// floor is the least that can be done: watch the claims, make and fsync each directory, create each
// volume object. It checks nothing, records nothing, says nothing and repairs nothing: whatever
// goes wrong ends it.
type floor struct {
	provisioner, node, pool string
	client                  kubernetes.Interface
	facts                   plan.ClaimFacts // all but the claim
}

func floorMain(args []string) int {
	var f floor
	flags := flag.NewFlagSet(floorCommand, flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the cluster")
	flags.StringVar(&f.provisioner, "provisioner", "", "the provisioner's name, which is also its class's")
	flags.StringVar(&f.node, "node", "", "this node's name")
	flags.StringVar(&f.pool, "pool", "", "the directory to make volumes in")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := harness.Outcome(func() error { return f.run(ctx, *kubeconfig) })
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		return 1
	}
	return 0
}

func (f *floor) run(ctx context.Context, kubeconfig string) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	f.connect(ctx, kubeconfig)
	work := make(chan *corev1.PersistentVolumeClaim, 10000)
	for range floorWorkers {
		go func() {
			for claim := range work {
				if err := f.provision(ctx, claim); err != nil {
					end(err)
				}
			}
		}()
	}
	harness.Check(f.follow(ctx, work))
	return context.Cause(ctx)
}

func (f *floor) connect(ctx context.Context, kubeconfig string) {
	config := harness.Got(clientcmd.BuildConfigFromFlags("", kubeconfig))
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	f.client = harness.Got(kubernetes.NewForConfig(config))
	classes, nodes := f.client.StorageV1().StorageClasses(), f.client.CoreV1().Nodes()
	class := harness.Got(classes.Get(ctx, f.provisioner, metav1.GetOptions{}))
	node := harness.Got(nodes.Get(ctx, f.node, metav1.GetOptions{}))
	f.facts = plan.ClaimFacts{Class: class, RequestFacts: plan.RequestFacts{
		Self: plan.Self{Provisioner: f.provisioner, Node: f.node}, NodeLabels: node.Labels,
		Pool: plan.Pool{Name: poolName, Path: f.pool, Source: plan.SourceHostPath},
	}}
}

// follow hands out each claim of this node once.
func (f *floor) follow(ctx context.Context, work chan<- *corev1.PersistentVolumeClaim) error {
	claims := f.client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll)
	list := harness.Got(claims.List(ctx, metav1.ListOptions{}))
	done := map[types.UID]bool{}
	take := func(claim *corev1.PersistentVolumeClaim) {
		if (plan.Self{Provisioner: f.provisioner, Node: f.node}).KeepClaim(claim) && claim.Annotations[plan.SelectedNode] == f.node && !done[claim.UID] {
			done[claim.UID] = true
			work <- claim
		}
	}
	for i := range list.Items {
		take(&list.Items[i])
	}
	watcher := harness.Got(watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion,
		&cache.ListWatch{WatchFuncWithContext: claims.Watch}))
	for event := range watcher.ResultChan() {
		if claim, ok := event.Object.(*corev1.PersistentVolumeClaim); ok && event.Type != watch.Deleted {
			take(claim)
		}
	}
	return errors.New("the watch of claims ended")
}

func (f *floor) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	facts := f.facts
	facts.Claim = claim
	pv := plan.NewVolume(facts, plan.VolumeName(claim))
	if err := makeDirectory(pv.Spec.HostPath.Path, 0o777); err != nil {
		return err
	}
	_, err := f.client.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	return err
}

// makeDirectory leaves a directory that is on stable storage, and so is its name.
func makeDirectory(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil {
		return err
	}
	if err := os.Chmod(path, mode); err != nil { // mkdir's mode went through the umask
		return err
	}
	if err := fsync(path); err != nil {
		return err
	}
	return fsync(filepath.Dir(path))
}

func fsync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
