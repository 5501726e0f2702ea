package main

import (
	"fmt"
	"path"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
)

// The CSI driver's unit and its sockets.
const (
	driver     = service + "-csi"
	ownSocket  = "/var/lib/kubelet/plugins/hostpath-provisioner/csi.sock"
	findSocket = "/var/lib/kubelet/plugins_registry/hostpath-provisioner-reg.sock"
)

// csi is kubelet's part by hand. It fails when the unit gets PrivateMounts=yes, or a setting that
// implies it, when a system call is taken from its filter, and with RemoveOnStop= of a service that
// has the sockets of its own.
func csi(e *environment) {
	dir := e.claim("for-csi", "fast")
	v := csinode.Of(path.Base(dir), "fast", dir)
	target := target("u-1", v)
	e.sh("echo data > " + dir + "/file")
	e.put("/csinode.yaml", "apiVersion: storage.k8s.io/v1\nkind: CSINode\nmetadata: {name: "+node+"}\nspec: {drivers: [{name: "+service+", nodeID: "+node+"}]}\n") // as kubelet would
	e.sh("kubectl apply -f csinode.yaml")
	e.says(e.docs("csi.md", "Switching it on"), service)
	e.sh("kubectl delete -f csinode.yaml")
	e.is("stat -c '%a %U' "+ownSocket+" "+findSocket, "600 root\n600 root")
	plugin, err := registration.NewRegistrationClient(e.connect(findSocket)).GetInfo(e.ctx, &registration.InfoRequest{})
	if err != nil || plugin.Name != service || plugin.Endpoint != ownSocket {
		e.Fatalf("the registration: %v, %v", plugin, err)
	}
	e.sandboxOfTheDriver()
	k := e.kubelet(service)
	e.Must(k.publish("u-1", v), "publishing")
	e.is("cat "+target+"/file", "data") // in the host's mount namespace
	before := e.sh("stat -c %i " + ownSocket + " " + findSocket)
	e.sh("systemctl stop " + service + "; systemctl restart " + driver + ".service")
	e.is("stat -c %i "+ownSocket+" "+findSocket, before)
	e.is("cat "+target+"/file", "data")
	e.Must(k.publish("u-1", v), "publishing again, without the daemon")
	e.unmount()
	e.Must(k.unpublish("u-1", v), "unpublishing without the pool")
	if err := k.publish("u-1", v); err == nil || !strings.Contains(err.Error(), "is closed: /srv/fast is not a mount point") {
		e.Fatalf("without the pool: %v", err)
	}
	e.sh("mount /srv/fast; systemctl start " + service)
	e.status("2 of 2 pools open")
	e.kubeletElsewhere()
	e.drop("for-csi")
}

// connect is a connection to a socket of the machine.
func (e *environment) connect(socket string) *grpc.ClientConn {
	c, err := grpc.NewClient("unix://"+e.outside(socket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	e.Must(err, "a connection")
	return c
}

// outside is the path of a file of the machine, mounted or not, seen from here.
func (e *environment) outside(file string) string {
	return fmt.Sprintf("/proc/%d/root%s", e.m.leader(), file)
}

// sandboxOfTheDriver: root with two capabilities, in the host's mount namespace, without a network.
func (e *environment) sandboxOfTheDriver() {
	pid := e.sh("systemctl show -P MainPID " + driver)
	status := e.sh("cat /proc/" + pid + "/status")
	const two = 1<<2 | 1<<21 // dac_read_search 2, sys_admin 21
	for _, set := range []string{"CapEff", "CapBnd", "CapPrm"} {
		e.says(status, fmt.Sprintf("%s:\t%016x", set, two))
	}
	e.says(strings.Join(strings.Fields(status), " "), "NoNewPrivs: 1", "Seccomp: 2")
	e.is("readlink /proc/"+pid+"/ns/mnt", e.sh("readlink /proc/1/ns/mnt"))
	e.sh("systemd-analyze security --threshold=37 --no-pager " + driver + ".service")
	for line := range strings.Lines(status) {
		if strings.HasPrefix(line, "VmRSS:") {
			fmt.Printf("         the CSI driver: %s\n", strings.Join(strings.Fields(line), " "))
		}
	}
}

// kubeletElsewhere: the generator writes the sockets' paths, and stopping the sockets' unit takes
// them away.
func (e *environment) kubeletElsewhere() {
	e.sh("systemctl stop " + driver + ".socket")
	e.is("ls "+ownSocket+" "+findSocket+" 2>/dev/null || true", "")
	e.put("/etc/hostpath-provisioner/conf.d/50-site.toml", "kubelet_root = \"/var/lib/k0s/kubelet\"\n")
	e.sh("systemctl daemon-reload; systemctl start " + driver + ".socket")
	e.sh("test -S /var/lib/k0s/kubelet/plugins/hostpath-provisioner/csi.sock; test -S /var/lib/k0s/kubelet/plugins_registry/hostpath-provisioner-reg.sock")
	e.sh("systemctl disable --now " + driver + ".socket; rm /etc/hostpath-provisioner/conf.d/50-site.toml; systemctl daemon-reload")
	e.is("find /var/lib/k0s -type s", "")
}
