package harness

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// Plane is a control plane with a namespace. It ends with the program.
type Plane struct {
	*Program
	Cluster   *cluster.Cluster
	Client    kubernetes.Interface // the administrator's, over protobuf, without a limit of requests
	Namespace string
}

// StartPlane starts a control plane. The options need no directory.
func (p *Program) StartPlane(ctx context.Context, namespace string, o cluster.Options) *Plane {
	p.Say("starting the control plane")
	o.Dir = hosttest.Dir(p)
	c, err := cluster.Start(ctx, o)
	p.Must(err, "starting the control plane")
	p.Cleanup(c.Kill) // its state is of no further use
	config := c.Config()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	p.Must(err, "making a client")
	plane := &Plane{Program: p, Cluster: c, Client: client}
	plane.Namespace, err = c.NewNamespace(ctx, namespace)
	p.Must(err, "making a namespace")
	return plane
}

// AddClass makes a StorageClass of Immediate binding, or as change changes it.
func (p *Plane) AddClass(ctx context.Context, name, provisioner string, change ...func(*storagev1.StorageClass)) {
	class := cluster.StorageClass(name, provisioner, storagev1.VolumeBindingImmediate)
	for _, f := range change {
		f(class)
	}
	_, err := p.Client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	p.Must(err, "making a class")
}

// ApplyManifests gives the daemons the rights that the product asks an administrator for. The
// classes that a configuration would have are the program's own to make.
func (p *Plane) ApplyManifests(ctx context.Context, d *rig.Daemon) {
	manifests, code := d.Call("manifests", "--no-classes")
	if code != 0 {
		p.Fatal(manifests)
	}
	p.Must(p.Cluster.Apply(ctx, []byte(manifests)), "applying the manifests")
}

// WriteKubeconfig writes the kubeconfig of a node's daemon; node is empty for one that is no
// node's.
func (p *Plane) WriteKubeconfig(ctx context.Context, node, file string) error {
	const account = "hostpath-provisioner"
	if err := p.Cluster.ServiceAccountKubeconfig(ctx, account, account, node, file); err != nil {
		return fmt.Errorf("making a kubeconfig: %w", err)
	}
	return nil
}
