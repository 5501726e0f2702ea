package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/follow"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/treecopy"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/prepare"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/clustercheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

// reasonHints are what helps against a finding, by its reason. POOL, PATH and MOUNT stand for the
// pool's name, its path and its mount point.
var reasonHints = map[string]string{
	hostcheck.ReasonMountTableUnreadable: "see whether /proc is mounted, then run: hostpath-provisioner check POOL",
	hostcheck.ReasonPathMissing:          "run: hostpath-provisioner prepare POOL",
	hostcheck.ReasonNotADirectory:        "move it away, then run: hostpath-provisioner prepare POOL",
	hostcheck.ReasonSymlinkInPath:        "write the path without the link into path and mount_point of [pool.POOL]",
	hostcheck.ReasonPathUnreadable:       "run it as root, and look at: ls -ld PATH",
	hostcheck.ReasonNotAutomounted:       "look at: systemctl status \"$(systemd-escape -p --suffix=mount MOUNT)\", or at the log of automount(8); the pool opens by itself once it is mounted",
	hostcheck.ReasonNotMounted:           "mount it, then run: hostpath-provisioner check POOL",
	hostcheck.ReasonRootFilesystem:       "unmount MOUNT and mount the pool's own storage there; for a plain directory set require_mount = false in [pool.POOL]",
	hostcheck.ReasonMountedOnItself:      "unmount MOUNT once; in a service, remove ReadWritePaths= and BindPaths= that name it",
	hostcheck.ReasonRootSquashed:         "export it to this host with no_root_squash; see /usr/share/doc/hostpath-provisioner/docs/shared.md",
	hostcheck.ReasonWrongMount:           "look at: findmnt -R MOUNT; then unmount what stands in between, or set mount_point of [pool.POOL] to it",
	hostcheck.ReasonMountsChanging:       "wait for the mounts to settle, then run: hostpath-provisioner check POOL",
	hostcheck.ReasonWrongFilesystem:      "look at: findmnt MOUNT; then mount the right one, or correct filesystem in [pool.POOL]",
	hostcheck.ReasonDeviceMissing:        "look at: lsblk -f; then attach the disk, or correct device in [pool.POOL]",
	hostcheck.ReasonWrongDevice:          "look at: findmnt MOUNT; then mount the right one, or correct device in [pool.POOL]",
	hostcheck.ReasonDeviceNotUnique:      "detach the copy or give it another UUID (tune2fs -U, xfs_admin -U); or name the disk in device of [pool.POOL] by PARTUUID= or a link in /dev/disk/by-id",
	hostcheck.ReasonNetworkFilesystem:    "set scope = \"shared\" in [pool.POOL] on every node that mounts it; exclusive = true says that no other node does",
	hostcheck.ReasonOtherNode:            "correct node in the configuration, or the host's name; if this node was renamed, or took over the disk, run: hostpath-provisioner prepare POOL --from-node NAME, with the name that the pool has",
	hostcheck.ReasonOtherCluster:         "give the daemon the kubeconfig of the pool's cluster; if the pool is this cluster's from now on, run: hostpath-provisioner prepare POOL --new-cluster",
	plan.ReasonOtherHost:                 "correct node in the configuration, or the kubeconfig; after a boot the pool opens by itself when kubelet has started",
	plan.ReasonRestartNeeded:             "run: systemctl restart hostpath-provisioner",
	plan.ReasonUnitOutdated:              "run: systemctl daemon-reload; then: systemctl restart hostpath-provisioner",
	plan.ReasonPathChanged:               "mount the storage where it was, and set path in [pool.POOL] back",
	plan.ReasonScopeChanged:              "set scope in [pool.POOL] back; see docs/operation.md on how to change it",
	hostcheck.ReasonReadOnly:             "look at: dmesg; a filesystem with errors is remounted read-only by the kernel",
	hostcheck.ReasonNotAnswering:         "look at: dmesg; and at the server, if MOUNT is on the network; and at journalctl -u hostpath-provisioner-mountpoint, if that is named; the pool comes back by itself",
	hostcheck.ReasonUnreadable:           "look at: dmesg; the disk or the network under MOUNT fails, or its server does not export it to this host any more",
	hostcheck.ReasonNotSeen:              "run it as root, then look at: ls -ld PATH; and at: ausearch -m avc",
	hostcheck.ReasonNotImmutable:         "run: hostpath-provisioner prepare POOL",
	hostcheck.ReasonImmutableUnknown:     "put MOUNT on a filesystem with chattr +i, or set immutable = \"warn\" in [pool.POOL]",
	hostcheck.ReasonLookNotPermitted:     "run: systemctl start hostpath-provisioner-mountpoint.socket; if it stays, look at: journalctl -u hostpath-provisioner-mountpoint; a command has to be run as root",
	hostcheck.ReasonLookFailed:           "run it again; if it stays, look at: findmnt MOUNT",
	hostcheck.ReasonNotPrepared:          "run: hostpath-provisioner prepare POOL",
	hostcheck.ReasonMarkerMissing:        "mount the pool's own filesystem; if this one takes its place, run: hostpath-provisioner prepare POOL --replace",
	hostcheck.ReasonMarkerDamaged:        "if this is the pool's own filesystem, run: cp /var/lib/hostpath-provisioner/state/pools/POOL.json PATH/.hostpath-provisioner/pool.json",
	hostcheck.ReasonMarkerChanged:        "mount the pool's own filesystem; if this one takes its place, run: hostpath-provisioner prepare POOL --replace",
	hostcheck.ReasonMarkerForeign:        "mount the pool's own filesystem, or call the pool in the configuration as the marker does",
	hostcheck.ReasonLowSpace:             "free space or enlarge the filesystem; reserve in [pool.POOL] says how much is kept",
	hostcheck.ReasonQuotaUnavailable:     "or set quota = \"off\" in [pool.POOL]: then nothing keeps a volume to its size; see docs/configuration.md",
	hostcheck.ReasonQuotaUnknown:         "run it as root; a kernel before Linux 5.14 needs quota = \"off\" in [pool.POOL]",
	hostcheck.ReasonNoSubvolumes:         "set snapshots = \"live\" or \"copy\" in [pool.POOL], or give the pool a btrfs; see docs/snapshots.md",
	plan.ReasonNotInForce: "run: hostpath-provisioner check --config-only; " +
		"then: systemctl reload hostpath-provisioner, or restart it where that says so",
	plan.ReasonCordoned: "to have new volumes again: hostpath-provisioner pool uncordon POOL",
	plan.ReasonPromised: "delete volumes, enlarge the filesystem, or raise overcommit in [pool.POOL]; " +
		"what each volume was promised is in SIZE of: hostpath-provisioner volumes POOL",
	plan.ReasonQuotaEscaped:          "find them with: find PATH -xdev -exec lsattr -pd {} +; and run their pods with hostUsers: false",
	plan.ReasonFewProjects:           "give quota_ids in [pool.POOL] more projects; find the files that have them with: find PATH -xdev -exec lsattr -pd {} +",
	hostcheck.ReasonProjectInherited: "volumes that have the project keep it until they are removed",
	hostcheck.ReasonLowInodes:        "remove small files, or make the filesystem with more inodes",
	hostcheck.ReasonUnknownType:      "install what has the type (container-selinux; see /usr/share/doc/hostpath-provisioner/docs/selinux.md), or set selinux_type in [pool.POOL] to a type that the policy has",
	hostcheck.ReasonWrongLabel:       "run: hostpath-provisioner relabel POOL",
	hostcheck.ReasonUnconfined:       "run: /usr/libexec/hostpath-provisioner/selinux-module install",
	hostcheck.ReasonWritableByOthers: "see that the volumes in it are what they were, then run: hostpath-provisioner prepare POOL",
	hostcheck.ReasonPoolsOverlap:     "look at: findmnt PATH; then unmount it, or take one of the two pools out of the configuration",
	hostcheck.ReasonModeTooOpen:      "run: chmod 0700 PATH",
	hostcheck.ReasonPlainDirectory:   "give the pool a filesystem of its own and remove require_mount from [pool.POOL]; if it is meant, add to it: accept = [\"PlainDirectory\"]",
	plan.ReasonLaxMount:              "if no container needs set-uid programs in its volume, add nosuid,nodev to the options of MOUNT in /etc/fstab, then run: mount -o remount MOUNT",
	plan.ReasonNotServed:             "run: systemctl daemon-reload; systemctl enable --now hostpath-provisioner-csi.socket",
	plan.ReasonInMemory:              "mount a disk at MOUNT, unless losing the volumes with every reboot is meant",
	plan.ReasonStateUnreadable:       "run it as root; a file that is damaged is written again by: hostpath-provisioner prepare POOL --replace",
	hostcheck.ReasonUnitShadowed:     "remove the other unit file, then run: systemctl daemon-reload",
	hostcheck.ReasonUnitMasked:       "run: systemctl unmask hostpath-provisioner",
}

// clusterHints are what helps against a reason of check --cluster. NODE, NAMESPACE, PROVISIONER and
// PATHS stand for what is configured.
var clusterHints = map[string]string{
	clustercheck.ReasonKubeconfigUnusable:    enrollHint,
	clustercheck.ReasonServerNotTrusted:      "if the cluster has a new authority: " + enrollHint,
	clustercheck.ReasonServerCertificateTime: "look at the clocks of this host and of the API server: date -u; or renew its certificate, with kubeadm: kubeadm certs renew apiserver",
	clustercheck.ReasonServerNameDiffers:     "have server in the kubeconfig be one of these names, or have one that has: " + enrollHint,
	clustercheck.ReasonServerWithoutTLS:      "correct server in the kubeconfig, or the load balancer there",
	clustercheck.ReasonServerWantsTLS:        "have server in the kubeconfig begin with https",
	clustercheck.ReasonNoCredential:          "see that the program under exec in the kubeconfig is installed, and runs as the service's user",
	clustercheck.ReasonProxyUnreachable:      "look at proxy-url in the kubeconfig, and at HTTPS_PROXY in: systemctl show hostpath-provisioner -p Environment",
	clustercheck.ReasonCredentialRefused:     enrollHint,
	clustercheck.ReasonCredentialIgnored:     "what stands before the API server takes it away, or it is of a kind that the server does not know: " + enrollHint,
	clustercheck.ReasonServerUnreachable:     "see whether this host reaches it: curl -k SERVER/healthz",
	clustercheck.ReasonServerFails:           "look at the API server's log",
	clustercheck.ReasonCredentialExpired:     enrollHint,
	clustercheck.ReasonCredentialEnds:        "look for \"token\" in: journalctl -u hostpath-provisioner; or " + enrollHint,
	clustercheck.ReasonCredentialEndless:     enrollHint,
	clustercheck.ReasonBoundToOtherNode:      enrollHint,
	clustercheck.ReasonOtherIdentity:         enrollHint,
	clustercheck.ReasonNotBound:              enrollHint,
	clustercheck.ReasonNodeMissing:           "correct node in the configuration, or see: kubectl get nodes",
	clustercheck.ReasonHostnameMissing:       "an administrator runs: kubectl label node NODE kubernetes.io/hostname=NODE",
	clustercheck.ReasonRightsMissing:         rightsHint,
	clustercheck.ReasonPodsUnread:            rightsHint,
	clustercheck.ReasonTooManyRights:         enrollHint,
	clustercheck.ReasonNoPolicies:            manifestsHint,
	clustercheck.ReasonPoliciesUnreadable:    manifestsHint,
	clustercheck.ReasonPoliciesReadConfigMap: configMapHint,
	clustercheck.ReasonPoliciesMissing:       manifestsHint,
	clustercheck.ReasonPoliciesUnbound:       manifestsHint,
	clustercheck.ReasonPoliciesNotEnforced:   "an administrator looks at the flags of the API servers: --disable-admission-plugins, --feature-gates",
	clustercheck.ReasonPoliciesDiffer:        manifestsHint,
	clustercheck.ReasonProvisionerNotListed:  parametersHint,
	clustercheck.ReasonPoolNotListed:         parametersHint,
	clustercheck.ReasonHostnameNotListed:     parametersHint,
	clustercheck.ReasonClassNotListed:        parametersHint,
	clustercheck.ReasonAudienceNotListed:     parametersHint,
	clustercheck.ReasonIndexUnbound:          indexHint,
	clustercheck.ReasonIndexDiffers:          indexHint,
	clustercheck.ReasonVolumesUnlabelled:     indexHint,
	clustercheck.ReasonIndexNotEnforced:      "an administrator looks at the flags of the API servers: --disable-admission-plugins, --feature-gates",
}

const (
	aliveHint = "if it does not come back, switch it off, delete its Node, and wait a minute; " +
		"or add: --force"
	enrollHint     = "run: hostpath-provisioner enroll --admin-kubeconfig FILE"
	rightsHint     = "an administrator runs: hostpath-provisioner manifests --no-classes --provisioner PROVISIONER --namespace NAMESPACECONFINED | kubectl apply -f -"
	manifestsHint  = "an administrator runs, with the paths of all nodes' pools: hostpath-provisioner manifests --no-classes --provisioner PROVISIONER --namespace NAMESPACEPATHS | kubectl apply -f -"
	parametersHint = "an administrator runs manifests with one flag more beside those in use: --pool-path, --shared-pool-path, --every-node-pool-path, --alias, --class, --hostname or --audience; those in use are in: kubectl get validatingadmissionpolicy volumes.NAMESPACE.hostpath-provisioner -o yaml"
	// The policies are replaced in their places, and the ConfigMap goes when no API server has the
	// old ones any more.
	configMapHint = "delete nothing; an administrator runs, with the entries of that ConfigMap: hostpath-provisioner manifests --no-classes --provisioner PROVISIONER --namespace NAMESPACEPATHS | kubectl apply -f -; and a minute later: kubectl delete configmap -n NAMESPACE hostpath-provisioner-confinement"
	bindingsHint  = "an administrator looks at what else is bound to it: kubectl get clusterrolebindings,rolebindings -A -o wide"
	indexHint     = "an administrator runs: hostpath-provisioner manifests --no-classes --claim-index | kubectl apply -f -"
)

// errorHints are what helps against an error, the first that it is.
var errorHints = []struct {
	err  error
	hint string
}{
	{prepare.ErrNoParent, "make the directory above it, or correct the path in the configuration"},
	{prepare.ErrNotDirectory, "move it away, then run this again"},
	{prepare.ErrNotEmpty, "see whose files these are: if they are volumes in use, on the host's own disk, set require_mount = false for the pool; else move them away; then run this again"},
	{prepare.ErrNoFlag, "put the mount point on a filesystem with chattr +i, or set immutable = \"warn\" for the pool"},
	{prepare.ErrMounted, "look at: findmnt -R; mount_point has to be where the storage is mounted"},
	{prepare.ErrMountsChanged, "run this again when the mounts have settled"},
	{prepare.ErrOtherFilesystem, "mount the pool's own filesystem; if this one takes its place, run this again with --replace"},
	{prepare.ErrOtherPool, "mount the pool's own filesystem, or call the pool in the configuration as the marker does"},
	{prepare.ErrNotOwner, "name the node that the marker or the records name: hostpath-provisioner check says which"},
	{volume.ErrUnlabelled, "look at: lsattr; immutable files keep their labels; then run this again"},
	{selinux.ErrNoLabels, "volumes there have the label that the mount has: mount option context=, see mount(8)"},
	{follow.ErrBase, sendAllHint},
	{treecopy.ErrNotKept, sendAllHint},
	{context.Canceled, "run it again: it goes on where it was"},
	{hostcheck.ErrMarkerDamaged, "replace the file that is named by a sound copy; or run with --replace to write again what this host remembers"},
	{fs.ErrPermission, permissionHint(os.Geteuid())},
}

const sendAllHint = "send all of it, without -i"

// permissionHint: what root is refused, it is not refused by file modes.
func permissionHint(user int) string {
	if user != 0 {
		return "run it as root"
	}
	return "root itself was refused: by a file server, which then has to export with no_root_squash (/usr/share/doc/hostpath-provisioner/docs/shared.md), or by SELinux (ausearch -m avc)"
}

// poolHint is what helps a pool against a finding.
func poolHint(reason string, pool config.Pool) string {
	if reason == plan.ReasonStateUnreadable && os.Geteuid() != 0 {
		return "run it as root" // what is remembered is root's, and most likely sound
	}
	nouns := strings.NewReplacer("POOL", pool.Name, "PATH", pool.Path, "MOUNT", pool.MountPoint)
	hint := nouns.Replace(reasonHints[reason])
	if reason == hostcheck.ReasonSymlinkInPath && filepath.IsAbs(pool.Path) { // not in overviews
		hint += ": " + withoutLink(pool.Path)
	}
	return hint
}

// withoutLink is a path with its first symbolic link replaced by what the link says. Nothing beyond
// the link is looked at: it may lead to storage that does not respond.
func withoutLink(path string) string {
	for end := 1; end <= len(path); end++ {
		if end < len(path) && path[end] != '/' {
			continue
		}
		if target, err := os.Readlink(path[:end]); err == nil {
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(path[:end]), target)
			}
			return filepath.Join(target, path[end:])
		}
	}
	return path
}

// linkError is ErrSymlink of a pool's path.
type linkError struct {
	error
	pool config.Pool
}

func (e linkError) Unwrap() error { return e.error }

// clusterHint is what helps against a reason of check --cluster.
func clusterHint(reason string, cfg config.Config, f clustercheck.Facts) string {
	flags, confined := confining(cfg), ""
	if f.Policies.Any() {
		confined = flags
	}
	if reason == clustercheck.ReasonTooManyRights && f.Identity.Node == cfg.Node {
		return bindingsHint
	}
	return strings.NewReplacer("NODE", cfg.Node, "NAMESPACE", cfg.Namespace, "PROVISIONER", cfg.Provisioner, "SERVER", f.API.Server, "PATHS", flags, "CONFINED", confined).Replace(clusterHints[reason])
}

// confining are the flags of manifests for the pools of this node, each with a space before it.
func confining(cfg config.Config) (flags string) {
	names := map[string]string{plan.ScopeNode: "--pool-path", plan.ScopeShared: "--shared-pool-path",
		plan.ScopeEveryNode: "--every-node-pool-path"}
	for _, pool := range cfg.Pools {
		flags += " " + names[pool.Scope] + " " + pool.Path
	}
	for _, alias := range cfg.Aliases {
		flags += " --alias " + alias
	}
	return flags
}

// rootHelp is the hint against a mistake on the command line, before it is known of which command.
const rootHelp = "run: hostpath-provisioner --help"

func hintFor(err error) string {
	var noPool noPoolError
	var noVolume noVolumeError
	var closed closedError
	var unfit *prepare.UnfitError
	var link linkError
	var bad config.Errors
	var unknown unknownCommandError
	switch {
	case errors.As(err, &unknown) && len(unknown.similar) > 0:
		return "did you mean: hostpath-provisioner " + strings.Join(unknown.similar, ", or hostpath-provisioner ")
	case errors.As(err, &noPool):
		return "the pools are: " + strings.Join(poolNames(noPool.c), ", ")
	case errors.As(err, new(usageError)):
		return rootHelp
	case errors.As(err, &noVolume):
		return "what there is, is listed by: hostpath-provisioner volumes"
	case errors.As(err, &closed):
		return poolHint(closed.finding.Reason, closed.pool)
	case errors.As(err, &bad) && bad.Untrusted():
		return "look at what is in it, then give it to root alone: chown root FILE; chmod go-w FILE"
	case errors.As(err, &bad) && len(bad) == 1 && bad[0].Line == 0 && bad[0].Key == "":
		if _, err := os.Lstat(bad[0].File); errors.Is(err, fs.ErrNotExist) {
			return "write one, /usr/share/doc/hostpath-provisioner/config.toml is an example; or name another one with --config"
		}
		return "make the file readable, or name another one with --config"
	case errors.As(err, &bad) && slices.ContainsFunc(bad, func(e config.Error) bool { return e.Own }):
		return "give the pool a directory elsewhere, and move its volumes as docs/upgrade.md describes"
	case errors.As(err, &bad):
		return "correct it, then run: hostpath-provisioner check --config-only"
	case errors.As(err, new(aliveError)):
		return aliveHint
	case errors.As(err, new(adminError)):
		return "" // no command of ours mends an administrator's credential
	case errors.As(err, new(*kube.KubeconfigError)):
		return enrollHint
	case errors.As(err, &link):
		return poolHint(hostcheck.ReasonSymlinkInPath, link.pool)
	case errors.As(err, &unfit):
		return poolHint(unfit.Finding.Reason, unfit.Pool)
	case errors.As(err, new(*state.HeldError)):
		return "stop the other one, or give each a --state-dir and pools of its own"
	case errors.As(err, new(*daemon.RestartError)), errors.Is(err, daemon.ErrNotCapable):
		return "run: systemctl daemon-reload; then: systemctl restart hostpath-provisioner"
	case kube.Refusal(err) == kube.Unauthorized:
		return "see: hostpath-provisioner check --cluster; or " + enrollHint
	case errors.Is(err, errNoDaemon):
		return "run: systemctl status hostpath-provisioner"
	}
	for _, known := range errorHints {
		if errors.Is(err, known.err) {
			return known.hint
		}
	}
	return ""
}

func poolNames(c config.Config) []string {
	var names []string
	for _, p := range c.Pools {
		if p.Table() != p.Name && !slices.Contains(names, p.Table()) {
			names = append(names, p.Table())
		}
		names = append(names, p.Name)
	}
	return names
}

// examples are what the help of a command, and its man page, show of its use.
var examples = map[string]string{
	"adopt": `
  hostpath-provisioner adopt fast --dry-run
  hostpath-provisioner adopt fast --from-csi kubevirt.io.hostpath-provisioner`,
	"backup": `
  hostpath-provisioner backup >/root/volumes.json`,
	"check": `
  hostpath-provisioner check fast
  hostpath-provisioner check --cluster`,
	"enroll": `
  hostpath-provisioner enroll --admin-kubeconfig /root/admin.conf
  hostpath-provisioner enroll --all -o kubeconfigs`,
	"explain": `
  hostpath-provisioner explain MountMissing`,
	"forget-node": `
  kubectl hostpath forget-node node-c --dry-run
  kubectl hostpath forget-node node-c --claims`,
	"import": `
  hostpath-provisioner import fast --from-node node-a --dry-run
  hostpath-provisioner import fast --new-cluster --claims --class fast=fast-xfs`,
	"manifests": `
  hostpath-provisioner manifests --pool-path /srv/fast | kubectl apply -f -
  hostpath-provisioner manifests --delete | kubectl delete --ignore-not-found -f -`,
	"nodes": `
  kubectl hostpath nodes -o wide`,
	"pool": `
  hostpath-provisioner pool cordon fast
  hostpath-provisioner pool uncordon fast`,
	"pools": `
  kubectl hostpath pools --watch`,
	"prepare": `
  hostpath-provisioner prepare fast
  hostpath-provisioner prepare fast --from-node node-a`,
	"quota": `
  hostpath-provisioner quota fast --apply`,
	"relabel": `
  hostpath-provisioner relabel fast --dry-run`,
	"snapshots": `
  kubectl hostpath snapshots -n shop`,
	"status": `
  hostpath-provisioner status --watch`,
	"volume": `
  hostpath-provisioner volume send pvc-1 | ssh node-b hostpath-provisioner volume receive fast
  hostpath-provisioner volume drop pvc-1`,
	"volumes": `
  hostpath-provisioner volumes fast
  kubectl hostpath volumes -n shop -o wide`,
	"why": `
  kubectl hostpath why pvc data
  kubectl hostpath why -n shop pod/db-0`,
}

// withExamples gives each command its examples.
func withExamples(root *cobra.Command) {
	for _, c := range root.Commands() {
		if text := examples[c.Name()]; text != "" {
			c.Example = text[1:] // without the line's end before it
		}
	}
}
