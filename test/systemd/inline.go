package main

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
)

const (
	inlinePage = "Inline volumes"
	// site is a file of the configuration that a step puts there and takes away.
	site = "/etc/hostpath-provisioner/conf.d/50-site.toml"
)

// inlineVolumes has the node service and the daemon, each in its unit, make and remove volumes of
// pods. It fails when the node service's unit gets PrivateMounts=yes, and when the daemon's start
// looks for no volume whose end was missed.
func inlineVolumes(e *environment) {
	e.put(site, e.text("csi.md", inlinePage, "toml"))
	e.block(0, "csi.md", inlinePage)
	e.status("2 of 2 pools open")
	k := e.kubelet(service)
	stays, ends, late := e.scratch("u-stays"), e.scratch("u-ends"), e.scratch("u-late")
	e.Must(k.publish("u-stays", stays), "publishing an inline volume")
	e.Must(k.publish("u-ends", ends), "publishing an inline volume")
	e.is("findmnt -no FSROOT --mountpoint "+target("u-stays", stays), "/"+stays.PV) // in the host's mount namespace
	e.sh("echo data > " + target("u-stays", stays) + "/file; cp " + target("u-stays", stays) + "/file " + target("u-ends", ends))
	e.says(e.sh("hostpath-provisioner volumes | grep "+stays.PV), "inline", "default/pod")

	e.sh("systemctl stop " + service)
	e.withoutDaemon(k, stays, ends, late)
	e.sh("systemctl start " + service)
	e.eventually("test -e /srv/fast/"+ends.PV+" || echo gone", "gone")
	e.is("cat "+target("u-stays", stays)+"/file", "data\nmore")
	e.Must(k.publish("u-late", late), "publishing what waited for the daemon")
	e.Must(k.unpublish("u-late", late), "unpublishing")
	e.Must(k.unpublish("u-stays", stays), "unpublishing")
	e.eventually("find /srv/fast -maxdepth 1 -name 'csi-*' | wc -l", "0")
	e.eventually("hostpath-provisioner volumes | grep -c inline || true", "0")
	e.sh("systemctl disable --now " + driver + ".socket; rm " + site + "; systemctl daemon-reload; systemctl restart " + service)
	e.status("2 of 2 pools open")
}

// withoutDaemon has a new pod refused after a time in which the daemon could have been started
// again. Meanwhile all goes on that needs none, and the cluster's side is switched on by the page,
// and off.
func (e *environment) withoutDaemon(k kubelet, stays, ends, late csinode.Volume) {
	refused := make(chan error, 1)
	e.sh("mkdir -p $(dirname " + target("u-late", late) + ")")
	go func() { refused <- k.askToPublish("u-late", late) }()
	e.sh("echo more >> " + target("u-stays", stays) + "/file")
	e.Must(k.unpublish("u-ends", ends), "unpublishing without the daemon")
	e.is("cat /srv/fast/"+ends.PV+"/file", "data")
	e.block(1, "csi.md", inlinePage)
	e.is("kubectl get csidriver "+service+" -o jsonpath='{.spec.volumeLifecycleModes}'", `["Persistent","Ephemeral"]`)
	e.sh("kubectl delete csidriver " + service + "; hostpath-provisioner manifests | kubectl apply -f -")
	const say = service + ".service does not respond"
	if err := <-refused; err == nil || !strings.Contains(err.Error(), say) {
		e.Fatalf("a new pod without the daemon: %v, want %q", err, say)
	}
	e.sh("systemctl restart " + driver + ".service")
	e.is("cat "+target("u-stays", stays)+"/file", "data\nmore")
	e.Must(k.publish("u-stays", stays), "publishing again, without the daemon")
}

// scratch is the volume of the page's pod, for a pod of this UID. This pool is smaller than the
// page's.
func (e *environment) scratch(uid string) csinode.Volume {
	var pod corev1.Pod
	e.Must(yaml.UnmarshalStrict([]byte(e.text("csi.md", inlinePage, "yaml")), &pod), "the page's pod")
	of := pod.Spec.Volumes[0]
	attributes := maps.Clone(of.CSI.VolumeAttributes)
	attributes["size"] = "16Mi"
	return csinode.Inline(uid, of.Name, attributes)
}
