//go:build nodes

package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ofKubevirt has a pod's volume written in the pod as for kubevirt's driver: with nothing but its
// name.
func ofKubevirt(s *corev1.PodSpec) {
	s.RestartPolicy = corev1.RestartPolicyAlways
	s.Volumes[0].VolumeSource = corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: kubevirtDriver}}
}

// inlineOfKubevirt has pods with such volumes, first while the pool has none.
func (c *csiNode) inlineOfKubevirt(ctx context.Context, w *environment) {
	pod := w.createPod(ctx, w.pod("inline", "inline", nil, fsGroup, runs(untilStopped), ofKubevirt))
	w.told(ctx, pod, "FailedMount", "no pool of this node has them (inline_volumes)")
	c.withPools(ctx, w, "source = \"csi\"\ninline_volumes = \"1536Mi\"", nil)
	w.ready(ctx, "inline")
	out, code := w.a.daemon.Call("volumes")
	if code != 0 || !strings.Contains(out, w.namespace+"/inline") || !strings.Contains(out, "1.0 GiB") || len(w.inlineVolumes(w.a)) != 1 {
		w.Fatalf("the pool has %q; volumes: exit code %d\n%s", w.inlineVolumes(w.a), code, out)
	}
}

// inlineLeftByKubevirt has the volume be what one of kubevirt's driver is, a directory of which
// there is no record, and its pod end.
func (c *csiNode) inlineLeftByKubevirt(ctx context.Context, w *environment) {
	name := w.inlineVolumes(w.a)[0]
	dir, container := w.a.path(poolDir, name), containerOf(w.ready(ctx, "inline"))
	c.withPools(ctx, w, "", func() {
		w.must(os.Remove(w.a.path(poolDir, ".hostpath-provisioner", "volumes", name+".json")), "removing the record")
	})
	out, code := w.a.daemon.Call("volumes")
	if code != 0 || !strings.Contains(out, "foreign") || strings.Contains(out, "/inline") {
		w.Fatalf("volumes: exit code %d\n%s", code, out)
	}
	w.keeps(ctx, "inline", container)
	w.startedAgain(ctx, "inline", dir)
	w.deletePod(ctx, "inline")
	w.must(eventually(ctx, "the end of the mount", func() error { return c.mounted(w, name) }), "waiting for kubelet")
	w.withoutDaemonFor(ctx, func() {}) // which looks for what has ended when it starts
	text, err := os.ReadFile(dir + "/pods")
	if err != nil || strings.Count(string(text), "inline\n") < 2 {
		w.Fatalf("the directory, which nothing removes, has %q, %v", text, err)
	}
	w.must(os.RemoveAll(dir), "removing what docs/csi.md says is left")
}

// withPools restarts daemon and service, as for sockets that systemd makes anew, with more keys of
// the pool.
func (c *csiNode) withPools(ctx context.Context, w *environment, keys string, between func()) {
	w.Helper()
	c.stop(w)
	w.withoutDaemonFor(ctx, func() {
		if between != nil {
			between()
		}
		if keys == "" {
			return
		}
		w.configure(w.a, func(config string) string { return config + keys + "\n" }) // of the last table
		c.listenAt(w, "unixgram", "/var/lib/kubelet/plugins/"+c.driver+"/inline.sock")
	})
	c.start(w)
}

// withoutDaemonFor does something while the daemon of node-a is stopped.
func (w *environment) withoutDaemonFor(ctx context.Context, do func()) {
	w.Helper()
	w.stop(ctx, w.a)
	do()
	w.must(w.a.daemon.Run(ctx), "starting the daemon again")
}

// mounted is an error while a directory of this name is mounted for a pod.
func (c *csiNode) mounted(w *environment, name string) error {
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", c.h.holder.PID()))
	if err == nil && strings.Contains(string(table), "/"+name+" ") {
		err = errors.New("it is mounted")
	}
	return err
}
