# hostpath-provisioner: the two commands are `make demo` and `make test`. Both want root, because they
# mount filesystems (in a mount namespace of their own).

BUILD   ?= .build
# VERSION is of the product, but to test-versions and test-nodes, to which it is one of Kubernetes.
ifneq (,$(filter test-versions,$(MAKECMDGOALS)))
VERSIONS := $(or $(VERSION),1.31 1.32 1.33 1.34 1.35 1.36 1.37)
override VERSION :=
else ifneq (,$(filter test-nodes,$(MAKECMDGOALS)))
PLANE := $(VERSION)
override VERSION :=
endif
override VERSION := $(or $(VERSION),$(shell sh packaging/version.sh))

# The same everywhere: both are part of the build cache's key.
export CGO_ENABLED = 0
GO      := go
GOFLAGS += -trimpath
LDFLAGS := -s -w -X main.version=$(VERSION)

# The suite of Debian that test-systemd and test-vm boot; and what the chapter kernel of test-vm boots, too: vmlinuz
# files, with spaces between.
export DEBIAN ?= bookworm
export KERNELS

.DEFAULT_GOAL := build
.PHONY: test-upgrade
.PHONY: help build demo test quick lint alerts unit e2e trials bench bench-scale pictures test-nodes test-upstream test-storm test-hang test-hostile footprint fuzz deps clean install packages test-vm test-chaos test-soak test-model test-fleet test-identity test-crash test-moves deps-systemd test-systemd test-kubeadm test-csi test-charts test-snapshots test-versions identity

include test/controlplane/build.mk

build: $(BUILD)/hostpath-provisioner ## the daemon, one static binary

.PHONY: $(BUILD)/hostpath-provisioner
$(BUILD)/hostpath-provisioner:
ifndef BUILT
	@mkdir -p $(BUILD)
	@echo "building the daemon"
	@$(GO) build $(GOFLAGS) -ldflags '$(LDFLAGS)' -o $@ ./cmd/hostpath-provisioner
endif

help: ## this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

deps: ## what tests and the demonstration need from the distribution's packages
	@sh test/deps.sh

deps-systemd: deps # and for packages and the booted systemd
	@sh test/systemd/deps.sh

# On the cluster that KUBECONFIG names nothing of Kubernetes is compiled.
demo: deps build $(BUILD)/prove $(if $(KUBECONFIG),,$(BUILD)/controlplane) ## the main job, step by step, on a throwaway real control plane
	@$(BUILD)/prove demo

# The trials are one program: test-crash and so on play one in its whole form, try-crash in a short one.
.PHONY: $(BUILD)/prove
$(BUILD)/prove:
ifndef BUILT
	@mkdir -p $(BUILD)
	@$(GO) build $(GOFLAGS) -ldflags '-s -w' -o $@ ./test/prove
endif

SOURCES := cmd daemon hostcheck selinux systemd packaging docs test

# The lanes take about as long as each other. What they need is built before, and not again in each.
test: deps build $(BUILD)/prove $(BUILD)/controlplane $(BUILD)/kubectl $(BUILD)/prometheus ## everything that must pass to land
	@BUILT=yes sh test/groups.sh lint shape alerts unit,sanity,try-crash+e2e,try-storm,try-hang,try-hostile

# Tests of which each costs more than half a minute of processor time: what fifty nodes and a hundred megabytes of claims
# cost, and the policies of an earlier version.
NIGHTLY := ^(TestFiftyNodes|TestMemoryOfPendingClaims|TestEarlierForm)$$

.PHONY: nightly
nightly: deps ## what searches at random or takes long, in turn: the other trials, fuzzing, the worlds of the model, the race detector, crash
	@sh test/groups.sh try-chaos try-soak fuzz test-worlds race test-crash

quick: lint shape ## what touches no API server and waits for nothing long, for a change under way
	@$(GO) test $(GOFLAGS) $(PURE)

lint: ## formatting and vet
	@test -z "$$(gofmt -l $(SOURCES))" || { echo "not formatted:"; gofmt -l $(SOURCES); exit 1; }
	@$(GO) vet $(GOFLAGS) ./...
	@large=$$(git ls-files -z 2>/dev/null | xargs -0r sh -c 'find "$$@" -size +1M' -); \
		test -z "$$large" || { echo "larger than 1 MiB, and kept: $$large"; exit 1; }

shape: ## how long functions, files and lines are, and the limits of each
	@$(GO) run $(GOFLAGS) ./test/shape .

alerts: ## the alerts that the packages have, with promtool, and the dashboard, which a module of its own generates
	@BUILD=$(abspath $(BUILD)) sh packaging/prometheus/test.sh
	@cd packaging/grafana/generate && $(GO) test $(GOFLAGS) -count=1 .

.PHONY: dashboard
dashboard: ## the dashboard for Grafana, from the list of the metrics and packaging/grafana/generate/panels.go
	@cd packaging/grafana/generate && $(GO) run $(GOFLAGS) . ../hostpath-provisioner.json

$(BUILD)/prometheus:
	@BUILD=$(abspath $(BUILD)) sh packaging/prometheus/fetch.sh

# go test, which tries what failed once more and tells what passed only then.
RERUN = $(GO) run $(GOFLAGS) ./test/rerun

# Packages whose tests mount, start processes or ask an API server, each time anew. Of the others the results of the
# same code stay true (go help test): they are neither linked nor run again.
TOUCH := /test/(cluster|fixture|harness|hosttest|hungfs|pool|process|rig)( |$$)
LIST   = $(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}} {{end}}' ./...
PURE   = $$($(LIST) | grep -vE '$(TOUCH)' | cut -d ' ' -f 1)
HOST   = $$($(LIST) | grep -E '$(TOUCH)' | cut -d ' ' -f 1 | grep -v -e /test/e2e -e /test/everynode)

# The packages' own tests, and those that need a control plane, whose binary they find in $(BUILD).
unit: build $(BUILD)/controlplane
	@echo "testing the packages"
	@$(RERUN) $(GOFLAGS) $(PURE) && pure=passed; \
		$(RERUN) $(GOFLAGS) -count=1 -timeout 60m -p 3 -skip '$(NIGHTLY)' $(HOST) && [ "$$pure" ]

e2e: build $(BUILD)/controlplane $(BUILD)/kubectl $(BUILD)/prometheus
	@echo "testing the daemon against a real API server and real filesystems"
	@$(RERUN) $(GOFLAGS) -count=1 -timeout 60m -parallel 6 -skip '$(NIGHTLY)' $(KINDS) ./test/e2e ./test/everynode

.PHONY: client
client: $(BUILD)/controlplane # the daemon's own requests and watches
	@$(RERUN) $(GOFLAGS) -count=1 -timeout 30m ./daemon/kube/...

.PHONY: kinds
kinds: KINDS = -run "$$($(GO) run $(GOFLAGS) ./test/versions kinds)"
kinds: e2e ## one e2e test of each kind

# Each of them has a target of its own, test-crash and so on, for the form that takes its time.
# The worlds of test/model are explored by its tests, in unit.
TRIALS := $(addprefix try-,crash storm hang hostile chaos soak)
trials: build $(BUILD)/prove $(BUILD)/controlplane ## what tries the product hard, in short forms
	@BUILT=yes sh test/groups.sh $(TRIALS)

.PHONY: $(TRIALS)
$(TRIALS): build $(BUILD)/prove $(BUILD)/controlplane
	@echo "trying the product: $(@:try-%=%)"
	@$(BUILD)/prove $(@:try-%=%) -short

# The detector sees what a run happens to do. Two tests measure memory, of which it takes much.
RACED     = CGO_ENABLED=1 $(GO)
UNTRACED := TestHalfSentRequestsAreCheap|TestMemoryOfPendingClaims
TRACED    = HOSTPATH_PROVISIONER=$(abspath $(BUILD)/race) GORACE=halt_on_error=1
.PHONY: race race-packages race-e2e race-trials $(BUILD)/race
race: race-packages race-e2e race-trials ## the race detector: every package, then e2e and the trials against a daemon that has it

race-packages:
	@sh test/deps.sh gcc
	@$(RACED) test $(GOFLAGS) -race -count=1 -timeout 40m -skip '$(UNTRACED)' $$($(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./cmd/... ./daemon/... ./hostcheck/... ./selinux/... ./systemd/...)

$(BUILD)/race: # the daemon
	@sh test/deps.sh gcc
	@$(RACED) build $(GOFLAGS) -race -o $@ ./cmd/hostpath-provisioner

race-e2e: build $(BUILD)/race $(BUILD)/controlplane $(BUILD)/kubectl $(BUILD)/prometheus
	@$(TRACED) $(GO) test $(GOFLAGS) -count=1 -timeout 60m -parallel 6 -skip '$(UNTRACED)' ./test/e2e ./test/everynode

race-trials: $(BUILD)/race
	@$(TRACED) $(MAKE) --no-print-directory trials

test-csi: sanity test-snapshots ## the CSI driver: csi-sanity, the node service, snapshots on xfs and btrfs
	@$(GO) test $(GOFLAGS) -count=1 ./daemon/node/csi/...

.PHONY: sanity
sanity: ## csi-sanity against the CSI driver, a module of its own
	@cd test/upstream/sanity && $(GO) test $(GOFLAGS) -count=1 .

.PHONY: charts
charts: build ## a Helm chart and a kustomization of the manifests, in $(BUILD)/charts
	@rm -rf $(BUILD)/charts && mkdir -p $(BUILD)/charts
	@$(BUILD)/hostpath-provisioner manifests --helm-chart $(BUILD)/charts/helm
	@$(BUILD)/hostpath-provisioner manifests --kustomization $(BUILD)/charts/kustomization

test-charts: ## both, rendered by Helm and Kustomize and compared with the manifests, a module of its own
	@cd test/upstream/charts && $(GO) test $(GOFLAGS) -count=1 .

test-snapshots: build $(BUILD)/controlplane ## snapshots with the snapshot-controller of Kubernetes, a module of its own
	@cd test/upstream/snapshotter && CONTROLPLANE=$(abspath $(or $(CONTROLPLANE),$(BUILD)/controlplane)) HOSTPATH_PROVISIONER=$(abspath $(BUILD)/hostpath-provisioner) $(GO) test $(GOFLAGS) -count=1 .

# What asks an API server, or PARTS of that. How each test ended is in $(BUILD)/versions/VERSION/results.
ONVERSIONS = demo client e2e identity $(TRIALS) test-snapshots
test-versions: deps build $(BUILD)/prove $(BUILD)/kubectl $(BUILD)/prometheus ## the product on other versions of Kubernetes: VERSION=1.33 or 1.33.13, without it all that are supported
	@failed=; for version in $(VERSIONS); do \
		echo "Kubernetes $$version"; \
		built=$(abspath $(BUILD))/versions/$$version; \
		$(if $(PARTS),,rm -f $$built/results;) \
		test/controlplane/version.sh $$version $$built && \
		CONTROLPLANE=$$built/controlplane RESULTS=$$built/results BUILT=yes VERSION= \
			sh test/groups.sh $(or $(PARTS),$(ONVERSIONS)) || failed="$$failed $$version"; \
	done; $(GO) run $(GOFLAGS) ./test/versions table $(BUILD)/versions; \
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

# The versions one after the other beneath a running daemon, the oldest first.
UPGRADES ?= 1.33 1.34 1.35 1.36 1.37
test-upgrade: deps build $(BUILD)/prove $(BUILD)/etcd ## Kubernetes upgraded beneath a running daemon
	@planes=; for version in $(UPGRADES); do \
		built=$(abspath $(BUILD))/versions/$$version; \
		test/controlplane/version.sh $$version $$built || exit 1; \
		planes="$$planes,$$built/controlplane"; \
	done; $(BUILD)/prove upgrade -planes "$${planes#,}" $(UPGRADEFLAGS)

fuzz: ## each fuzz target for a fixed number of inputs, or FUZZTIME=1m
	@sh test/fuzz.sh $(FUZZTIME)

bench: deps build $(BUILD)/controlplane ## beside a bare client and a tuned provisioner on the usual library
	@sh test/bench/run.sh $(BENCHFLAGS)

bench-scale: deps build $(BUILD)/prove $(BUILD)/controlplane ## what a node takes beside 100,000 claims of other nodes: memory, bytes, the first volume
	@cd test/bench/peer && $(GO) build $(GOFLAGS) -ldflags '-s -w' -o $(abspath $(BUILD))/bench-peer .
	@$(BUILD)/prove scale -build $(abspath $(BUILD)) $(SCALEFLAGS)

footprint: SCALEFLAGS ?= -sizes 0,20000 -starts 1
footprint: bench-scale ## the same beside 20,000 claims

# D2 is a tool in a module of its own, as nfpm.
$(BUILD)/d2: test/pictures/d2/go.mod test/pictures/d2/go.sum
	@mkdir -p $(BUILD)
	@echo "building D2, which draws diagrams"
	@cd test/pictures/d2 && $(GO) build $(GOFLAGS) -o $(abspath $@) oss.terrastruct.com/d2

.PHONY: recording
recording: deps build $(BUILD)/prove $(BUILD)/controlplane ## what make demo prints, kept and drawn for the README
	@$(GO) run $(GOFLAGS) ./test/pictures record $(abspath $(BUILD)/prove)

pictures: $(BUILD)/d2 ## those of the pages: from what make bench and make bench-scale measured, and the texts in docs/pictures
	@$(GO) run $(GOFLAGS) ./test/pictures $(abspath $(BUILD)/d2)

.PHONY: site
site: ## the pages as a static site with search that works offline, in $(BUILD)/site
	@BUILD=$(abspath $(BUILD)) VERSION='$(VERSION)' sh docs/site/build.sh

.PHONY: test-site
test-site: ## and read in chromium: each page, link, anchor and picture, and the search
	@sh test/deps.sh chromium
	@BUILD=$(abspath $(BUILD)) VERSION='$(VERSION)' sh docs/site/build.sh browser

# VERSION=1.37 is of the control plane, and KUBELET=1.36,1.37 of the nodes, one after the other: both are of VERSION.
test-nodes: deps build $(BUILD)/controlplane $(BUILD)/kubelet $(BUILD)/snapshotter ## real kubelets and pods on two nodes, and on three of which two die
	@sh test/nodes/$(if $(PLANE),versions.sh $(PLANE) $(or $(KUBELET),$(PLANE)),run.sh)

test-upstream: deps build $(BUILD)/controlplane $(BUILD)/kubelet $(BUILD)/kubectl $(BUILD)/snapshotter $(BUILD)/upstream ## Kubernetes' own tests of external storage and StatefulSets on real kubelets
	@sh test/nodes/run.sh upstream

test-storm: deps build $(BUILD)/prove $(BUILD)/controlplane ## a pool unmounted at the worst moments, under claims that come and go
	@$(BUILD)/prove storm $(STORMFLAGS)

test-hang: deps build $(BUILD)/prove $(BUILD)/controlplane ## storage that stops responding in each call, and everything that must go on
	@$(BUILD)/prove hang $(HANGFLAGS)

test-hostile: deps build $(BUILD)/prove $(BUILD)/controlplane ## tenants that make their volumes hard to remove
	@$(BUILD)/prove hostile $(HOSTILEFLAGS)

.PHONY: mutants
mutants: deps build $(BUILD)/controlplane $(BUILD)/prometheus ## break the product on purpose, one line at a time: each proof has to notice
	@$(GO) run $(GOFLAGS) ./test/mutants $(MUTANTFLAGS)

# nfpm is a tool in a module of its own, so that the product's go.mod does not name what it needs.
$(BUILD)/nfpm: packaging/nfpm/go.mod packaging/nfpm/go.sum
	@mkdir -p $(BUILD)
	@echo "building nfpm"
	@cd packaging/nfpm && $(GO) build $(GOFLAGS) -o $(abspath $@) github.com/goreleaser/nfpm/v2/cmd/nfpm

packages: $(BUILD)/nfpm ## .deb and .rpm for amd64 and arm64, in $(BUILD)/packages
	@rm -rf $(BUILD)/packages
	@VERSION='$(VERSION)' NFPM=$(BUILD)/nfpm OUT=$(BUILD)/packages sh packaging/build.sh

test-vm: deps build packages $(BUILD)/controlplane $(BUILD)/kubelet $(BUILD)/prometheus ## the package under SELinux enforcing, NFS, failing devices and power cuts, in a machine under qemu
	@sh test/vm/deps.sh
	@$(GO) run $(GOFLAGS) ./test/vm $(VMFLAGS)

test-chaos: deps build $(BUILD)/prove $(BUILD)/controlplane ## an unkind API between the daemon and a real API server
	@$(BUILD)/prove chaos $(CHAOSFLAGS)

test-soak: deps build $(BUILD)/prove $(BUILD)/controlplane ## 100,000 claims over one daemon, which must be no larger afterwards
	@$(BUILD)/prove soak $(SOAKFLAGS)

test-model: build $(BUILD)/prove ## every order of events in small worlds, as deep as an hour goes
	@$(BUILD)/prove model $(MODELFLAGS)

.PHONY: test-worlds
test-worlds: build $(BUILD)/controlplane ## what make test does a part of, whole: each world of the model, orders of policies, moments to be killed at; fifty nodes
	@HOSTPATH_WORLDS=whole $(GO) test $(GOFLAGS) -count=1 -timeout 60m -skip '^(TestServer|TestFilesystems)' ./test/model
	@HOSTPATH_WORLDS=whole $(GO) test $(GOFLAGS) -count=1 -timeout 60m -p 1 -run '^(TestOrders|TestAdoptFromCSIKilled)$$|$(NIGHTLY)' ./test/identity ./test/e2e ./test/everynode

# MODELFLAGS: -for 10m, -seed N for the first order's, -worlds every.
.PHONY: test-model-real
test-model-real: deps build $(BUILD)/controlplane ## orders that the model chooses at random, on the real daemon, for an hour
	@$(GO) test $(GOFLAGS) -tags modelreal -count=1 -timeout 0 -run '^(TestFilesystems|TestServerRestored|TestLong|TestRandom)$$' -v ./test/model -args $(MODELFLAGS)

identity: build $(BUILD)/controlplane
	@$(RERUN) $(GOFLAGS) -count=1 -timeout 30m ./test/identity

test-identity: deps identity $(BUILD)/prometheus ## a thief of one node's token, on a confined cluster
	@HOSTPATH_CONFINED=1 $(GO) test $(GOFLAGS) -count=1 -timeout 40m -parallel 6 -skip '$(UNCONFINED)' ./test/e2e ./test/everynode

# Each right's test waits in vain for what it cannot have. The short form is in "make unit": each right has a row.
.PHONY: test-rights
test-rights: deps build $(BUILD)/controlplane $(BUILD)/kubectl $(BUILD)/prometheus ## each right of the manifests is needed, and none is unused
	@rm -rf $(BUILD)/audit && mkdir -p $(BUILD)/audit
	@HOSTPATH_AUDIT=$(abspath $(BUILD)/audit) $(GO) test $(GOFLAGS) -count=1 -timeout 60m -p 1 ./test/e2e ./test/everynode
	@HOSTPATH_AUDIT=$(abspath $(BUILD)/audit) $(GO) test $(GOFLAGS) -count=1 ./test/identity
	@$(GO) run $(GOFLAGS) ./test/rights -used $(BUILD)/audit
	@$(GO) run $(GOFLAGS) ./test/rights $(RIGHTSFLAGS)

# An administrator adopts; a node without a Node object has no token; one test starts its daemon before there is a token, and one leads it to another
# cluster.
UNCONFINED := Adopt|TestInPlaceOfKubevirt|TestSnapshotOfKubevirtsVolume|TestOwnVolumeStays|AliasClasses|NodeThatDoesNotExist|APIServerAway|TestAnotherCluster

test-fleet: deps build $(BUILD)/prove $(BUILD)/controlplane ## 100 daemons on one API server, and what they ask of it
	@$(BUILD)/prove fleet $(FLEETFLAGS)

test-crash: deps build $(BUILD)/prove $(BUILD)/controlplane ## the daemon killed at every system call of every operation
	@$(BUILD)/prove crash $(CRASHFLAGS)

test-moves: deps build $(BUILD)/prove $(BUILD)/controlplane ## import and forget-node killed at every point, and 1,000 times while disks change places
	@$(BUILD)/prove crash -kills 0 -only '^move' -moves $(or $(MOVES),1000)

# cyclonedx-gomod is a tool in a module of its own, too.
$(BUILD)/cyclonedx-gomod: packaging/cyclonedx/go.mod packaging/cyclonedx/go.sum
	@mkdir -p $(BUILD)
	@echo "building cyclonedx-gomod"
	@cd packaging/cyclonedx && $(GO) build $(GOFLAGS) -o $(abspath $@) github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

$(BUILD)/krew: packaging/krew/go.mod packaging/krew/go.sum # and krew, which installs plugins of kubectl
	@mkdir -p $(BUILD)
	@cd packaging/krew && $(GO) build $(GOFLAGS) -o $(abspath $@) sigs.k8s.io/krew/cmd/krew

WITH = VERSION='$(VERSION)' NFPM=$(BUILD)/nfpm CYCLONEDX=$(BUILD)/cyclonedx-gomod
.PHONY: release
release: $(BUILD)/nfpm $(BUILD)/cyclonedx-gomod ## packages, archives, bills of modules, krew's manifest and checksums, in $(BUILD)/release; KEY= signs, COCKPIT=yes adds the page
	@$(WITH) BUILD=$(abspath $(BUILD)) COCKPIT='$(COCKPIT)' KEY='$(KEY)' URL='$(URL)' OUT=$(BUILD)/release sh packaging/release.sh

.PHONY: check-release
check-release: deps-systemd $(BUILD)/nfpm $(BUILD)/cyclonedx-gomod $(BUILD)/krew ## lintian, rpmlint, krew, and a second build of a release that has to make the same bytes
	@$(WITH) KREW=$(abspath $(BUILD)/krew) sh packaging/check.sh

# REPOSITORY is kept, and every release added to it.
REPOSITORY ?= $(BUILD)/repository
RELEASE    ?= $(BUILD)/release
.PHONY: repository
repository: ## adds a release to the apt and dnf repositories in REPOSITORY, signed with KEY, for URL
	@KEY='$(KEY)' URL='$(URL)' RELEASE='$(RELEASE)' REPOSITORY='$(REPOSITORY)' sh packaging/repository.sh

# The packages, and newer ones to upgrade to, on a booted systemd with a real control plane.
$(BUILD)/escape: # what is started in the daemon's place, to get out of its sandbox
	@$(GO) build $(GOFLAGS) -o $@ ./test/systemd/escape

.PHONY: $(BUILD)/escape
test-systemd: deps-systemd packages $(BUILD)/controlplane $(BUILD)/kubectl $(BUILD)/escape ## the packages on a booted Debian, in a container
	@rm -rf $(BUILD)/packages-newer
	@sed 's/^# hostpath-provisioner: .*/&\n# A later version says more./' packaging/config.toml >$(BUILD)/newer.toml
	@VERSION="$$(AFTER=1 sh packaging/version.sh)" EXAMPLE=$(BUILD)/newer.toml ARCHES=amd64 NFPM=$(BUILD)/nfpm OUT=$(BUILD)/packages-newer sh packaging/build.sh >/dev/null
	@$(GO) run $(GOFLAGS) ./test/systemd

# Both releases and the throwaway keys are made by the script.
.PHONY: repositories
repositories: $(BUILD)/nfpm $(BUILD)/cyclonedx-gomod
	@$(WITH) NEWER="$$(AFTER=1 sh packaging/version.sh)" URL=http://127.0.0.1:8088 OUT=$(BUILD)/repositories sh test/systemd/repository.sh

.PHONY: test-repository
test-repository: deps-systemd repositories ## apt and dnf with signed repositories, two versions and another key, on a booted Debian
	@$(GO) run $(GOFLAGS) ./test/systemd repository

IMAGES = SYSEXT=yes ARCHES=amd64 NFPM=$(BUILD)/nfpm
.PHONY: test-sysext
test-sysext: deps-systemd $(BUILD)/nfpm $(BUILD)/controlplane $(BUILD)/kubectl ## the image for systemd-sysext on a booted Debian
	@rm -rf $(BUILD)/packages $(BUILD)/packages-newer
	@$(IMAGES) VERSION='$(VERSION)' OUT=$(BUILD)/packages sh packaging/build.sh >/dev/null
	@$(IMAGES) VERSION="$$(AFTER=1 sh packaging/version.sh)" OUT=$(BUILD)/packages-newer \
		sh packaging/build.sh >/dev/null
	@$(GO) run $(GOFLAGS) ./test/systemd sysext

.PHONY: test-ansible
test-ansible: deps-systemd repositories $(BUILD)/controlplane ## the Ansible role on three booted Debians
	@$(GO) run $(GOFLAGS) ./test/systemd ansible

# The page for Cockpit needs npm, and is therefore neither in packages nor in test.
.PHONY: cockpit
cockpit: $(BUILD)/nfpm ## the page for Cockpit, and its packages, in $(BUILD)/cockpit; wants nodejs and npm
	@BUILD=$(abspath $(BUILD)) VERSION='$(VERSION)' NFPM=$(BUILD)/nfpm OUT=$(BUILD)/cockpit sh packaging/cockpit/build.sh

.PHONY: test-cockpit
test-cockpit: deps-systemd packages cockpit $(BUILD)/controlplane $(BUILD)/kubectl ## the page, in chromium, on a booted Debian with Cockpit; pictures in $(BUILD)/cockpit/pictures
	@sh test/deps.sh chromium
	@$(GO) run $(GOFLAGS) ./test/systemd cockpit

test-kubeadm: deps-systemd packages $(KUBEADM) $(BUILD)/etcd $(BUILD)/kubelet $(BUILD)/kubectl ## from an empty machine to the first claim, with kubeadm
	@$(GO) run $(GOFLAGS) ./test/systemd kubeadm

# By hand on a node; packages are the usual way. It is what the Debian package has, without its scriptlets.
install: build
	@rm -rf $(BUILD)/stage && mkdir -p $(BUILD)/stage
	@VERSION='$(VERSION)' sh packaging/build.sh --stage $(BUILD)/stage
	@$(GO) run $(GOFLAGS) ./packaging/install $(BUILD)/stage '$(or $(DESTDIR),/)'
	test -n "$(DESTDIR)" || systemd-sysusers hostpath-provisioner.conf
	test -n "$(DESTDIR)" || systemctl daemon-reload
	test -n "$(DESTDIR)" || journalctl --update-catalog

clean:
	rm -rf $(BUILD)
