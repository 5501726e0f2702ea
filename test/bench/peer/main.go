// Command peer is what a careful user would otherwise build: a provisioner of directories on the
// library that most provisioners stand on, sigs.k8s.io/sig-storage-lib-external-provisioner.
//
// It is for the benchmark alone, and a Go module of its own, so that the library never becomes a
// dependency of the daemon. It checks nothing about the host.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// settings has the library's and client-go's own defaults where a flag is not given.
type settings struct {
	kubeconfig, provisioner, node, pool string

	threads int
	qps     float64
	burst   int
	elect   bool
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	var s settings
	flags := flag.NewFlagSet("peer", flag.ContinueOnError)
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "how to reach the cluster")
	flags.StringVar(&s.provisioner, "provisioner", "", "the provisioner's name in storage classes")
	flags.StringVar(&s.node, "node", "", "this node's name")
	flags.StringVar(&s.pool, "pool", "", "the directory to make volumes in")
	flags.IntVar(&s.threads, "threads", controller.DefaultThreadiness, "workers")
	flags.Float64Var(&s.qps, "qps", float64(rest.DefaultQPS), "requests a second")
	flags.IntVar(&s.burst, "burst", rest.DefaultBurst, "requests at once")
	flags.BoolVar(&s.elect, "leader-election", controller.DefaultLeaderElection, "elect a leader")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := provision(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		return 1
	}
	return 0
}

func provision(ctx context.Context, s settings) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = float32(s.qps), s.burst
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	node, err := client.CoreV1().Nodes().Get(ctx, s.node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	p := &provisioner{node: node, pool: s.pool}
	controller.NewProvisionController(ctx, client, s.provisioner, p,
		controller.Threadiness(s.threads),
		controller.LeaderElection(s.elect),
		controller.AddFinalizer(true),
	).Run(ctx)
	return nil
}

type provisioner struct {
	node *corev1.Node
	pool string
}

// ShouldProvision is for the claims of this node only.
func (p *provisioner) ShouldProvision(_ context.Context, claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations["volume.kubernetes.io/selected-node"] == p.node.Name
}

// Provision makes a directory that a power cut does not undo.
func (p *provisioner) Provision(_ context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	path := filepath.Join(p.pool, o.PVName)
	if err := makeDirectory(path); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	return p.volume(o, path), controller.ProvisioningFinished, nil
}

// Delete removes the directory before the object goes.
func (p *provisioner) Delete(_ context.Context, pv *corev1.PersistentVolume) error {
	path := filepath.Join(p.pool, pv.Name)
	if pv.Spec.HostPath == nil || pv.Spec.HostPath.Path != path {
		return &controller.IgnoredError{Reason: "another program's volume"}
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return sync(p.pool)
}

func (p *provisioner) volume(o controller.ProvisionOptions, path string) *corev1.PersistentVolume {
	directory, mode := corev1.HostPathDirectory, corev1.PersistentVolumeFilesystem
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *o.StorageClass.ReclaimPolicy,
			AccessModes:                   o.PVC.Spec.AccessModes,
			MountOptions:                  o.StorageClass.MountOptions,
			VolumeMode:                    &mode,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: o.PVC.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &directory}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{p.node.Labels[corev1.LabelHostname]},
				}},
			}}}},
		},
	}
}

// makeDirectory leaves a directory of mode 0777 that is on stable storage, and so is its name.
func makeDirectory(path string) error {
	if err := os.Mkdir(path, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := os.Chmod(path, 0o777); err != nil { // mkdir's mode went through the umask
		return err
	}
	if err := sync(path); err != nil {
		return err
	}
	return sync(filepath.Dir(path))
}

func sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
