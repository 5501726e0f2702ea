# A real control plane, its kubectl and its kubelet, for tests. To be included
# from the root Makefile; works from the root only.

BUILD ?= .build

.PHONY: controlplane-force
controlplane-force:

# CONTROLPLANE is another one, of another version of Kubernetes: version.sh.
$(BUILD)/controlplane: controlplane-force
ifndef CONTROLPLANE
	@test/controlplane/build.sh $@ .
endif

$(BUILD)/kubectl: controlplane-force
	@test/controlplane/build.sh $@ k8s.io/kubernetes/cmd/kubectl

# Only for tests with real nodes.
$(BUILD)/kubelet: controlplane-force
	@test/controlplane/build.sh $@ k8s.io/kubernetes/cmd/kubelet

# Kubernetes' own tests, in a module of their own; go decides what is up to date.
$(BUILD)/upstream: controlplane-force
	@test/upstream/build.sh $@

# Kubernetes' snapshot-controller and the resources that belong to it, from a module of their own.
$(BUILD)/snapshotter: controlplane-force
	@test/upstream/snapshotter/build.sh $@

# Only for a cluster made by kubeadm.
KUBEADM := $(addprefix $(BUILD)/,kubeadm kube-apiserver kube-controller-manager kube-scheduler)
$(KUBEADM): controlplane-force
	@test/controlplane/build.sh $@ k8s.io/kubernetes/cmd/$(@F)

$(BUILD)/etcd: controlplane-force
	@test/controlplane/build.sh $@ go.etcd.io/etcd/server/v3
