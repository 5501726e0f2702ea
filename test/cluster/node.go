package cluster

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AddNode makes a Node object without a kubelet, and waits until
// the scheduler may use it. The labels come on top of the usual ones and win;
// one that sets kubernetes.io/hostname makes a node whose hostname label is
// not its name, as happens in real clusters.
//
// Pods get scheduled there and stay Pending for ever.
func (c *Cluster) AddNode(ctx context.Context, name string, labels map[string]string) error {
	return c.addNode(ctx, name, labels, readyStatus(name))
}

// AddHost is AddNode of a Node that tells which host it is, as a kubelet on this one would.
func (c *Cluster) AddHost(ctx context.Context, name string, labels map[string]string) error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	status := readyStatus(name)
	status.NodeInfo.BootID = strings.TrimSpace(string(boot))
	return c.addNode(ctx, name, labels, status)
}

func (c *Cluster) addNode(
	ctx context.Context, name string, labels map[string]string, status corev1.NodeStatus,
) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname:   name,
			corev1.LabelOSStable:   runtime.GOOS,
			corev1.LabelArchStable: runtime.GOARCH,
		}},
		Status: status,
	}
	maps.Copy(node.Labels, labels)
	if _, err := c.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("add node %q: %w", name, err)
	}
	// Every Node is born with the not-ready taint, whatever its status says;
	// the node lifecycle controller takes it off.
	_, err := WaitFor(ctx, c.client.CoreV1().Nodes(), name, func(n *corev1.Node) bool {
		return !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
	})
	return err
}

// readyStatus is a status that the scheduler is content with: Ready, and room
// for more Pods than a test makes.
func readyStatus(hostname string) corev1.NodeStatus {
	room := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("1000"),
		corev1.ResourceMemory:           resource.MustParse("1Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("10000"),
	}
	now := metav1.Now()
	return corev1.NodeStatus{
		Capacity:    room,
		Allocatable: room,
		Addresses:   []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: hostname}},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			Reason: "NoKubelet", Message: "this Node exists for a test only",
			LastHeartbeatTime: now, LastTransitionTime: now,
		}},
	}
}
