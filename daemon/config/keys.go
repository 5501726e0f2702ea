package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net"
	"os/user"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// rootKeys and poolKeys are the keys there are, each with what checks and takes its value.
var (
	rootKeys = map[string]func(*Config, any) error{
		"provisioner":          text(func(c *Config, s string) error { c.Provisioner = s; return CheckProvisioner(s) }),
		"aliases":              setAliases,
		"csi_drivers":          setCSIDrivers,
		"node":                 text(func(c *Config, s string) error { c.Node = s; return checkNode(s) }),
		"kubeconfig":           text(func(c *Config, s string) error { c.Kubeconfig = s; return checkPath(s) }),
		"namespace":            text(func(c *Config, s string) error { c.Namespace = s; return checkNamespace(s) }),
		"metrics":              text(func(c *Config, s string) error { c.Metrics = s; return checkListen(s) }),
		"metrics_web_config":   text(func(c *Config, s string) error { c.MetricsWebConfig = s; return checkPath(s) }),
		"volume_metrics":       number(mostMetrics, func(c *Config, n int64) { c.VolumeMetrics = int(n) }),
		"kubelet_root":         text(func(c *Config, s string) error { c.KubeletRoot = s; return checkKubeletRoot(s) }),
		"confine":              truth(func(c *Config, b bool) { c.Confine = b }),
		"publish_capacity":     truth(func(c *Config, b bool) { c.PublishCapacity = b }),
		"act_on_selected_node": truth(func(c *Config, b bool) { c.ActOnSelectedNode = b }),
	}
	poolKeys = map[string]func(*Pool, any) error{
		"path":          text(func(p *Pool, s string) error { p.Path = s; return checkPoolPath(s) }),
		"paths":         setPaths,
		"mount_point":   text(func(p *Pool, s string) error { p.MountPoint = s; return checkPoolPath(s) }),
		"require_mount": truth(func(p *Pool, b bool) { p.RequireMount = b }),
		"immutable":     choice(func(p *Pool) *string { return &p.Immutable }, ImmutableRequire, ImmutableWarn, ImmutableOff),
		"filesystem":    text(func(p *Pool, s string) error { p.Filesystem = s; return checkFilesystem(s) }),
		"device":        text(func(p *Pool, s string) error { p.Device = s; return checkDevice(s) }),
		"scope":         choice(func(p *Pool) *string { return &p.Scope }, plan.ScopeNode, plan.ScopeShared, plan.ScopeEveryNode),
		"exclusive":     truth(func(p *Pool, b bool) { p.Exclusive = b }),
		"source": text(func(p *Pool, s string) error {
			p.Source, p.SourceSet = s, true
			return oneOf(s, plan.SourceHostPath, plan.SourceLocal, plan.SourceCSI)
		}),
		"mode":  text(setMode),
		"owner": text(setOwner),
		"group": text(setGroup),
		"directory": text(func(p *Pool, s string) (err error) {
			p.Directory, err = ParsePattern(s)
			return err
		}),
		"on_delete":      choice(func(p *Pool) *string { return &p.OnDelete }, plan.OnDeleteDelete, plan.OnDeleteArchive),
		"reclaim_policy": choice(func(p *Pool) *string { return &p.ReclaimPolicy }, PolicyDelete, PolicyRetain),
		"selinux_type":   text(func(p *Pool, s string) error { p.SELinuxType = s; return checkSELinuxType(s) }),
		"accept":         setAccept,
		"quota":          choice(func(p *Pool) *string { return &p.Quota }, plan.QuotaOff, plan.QuotaProject, plan.QuotaCeph),
		"clones":         choice(func(p *Pool) *string { return &p.Clones }, plan.ClonesOff, plan.ClonesReflink, plan.ClonesCopy),
		"snapshots": choice(func(p *Pool) *string { return &p.Snapshots },
			plan.SnapshotsOff, plan.SnapshotsLive, plan.SnapshotsPaused, plan.SnapshotsSnapshot,
			plan.SnapshotsCopy),
		"pause_limit":             text(setPauseLimit),
		"inline_volumes":          text(setInlineVolumes),
		"quota_ids":               setQuotaIDs,
		"snapshots_per_namespace": text(setSnapshotSpace),
		"inodes_per_gib":          number(mostInodes, func(p *Pool, n int64) { p.InodesPerGiB = uint64(n) }),
		"reserve":                 text(setReserve),
		"overcommit":              setOvercommit,
		"default":                 truth(func(p *Pool, b bool) { p.Default = b }),
	}
)

// Keys are the paths of all keys, sorted, with NAME for a pool's name: "pool.NAME.path".
func Keys() []string {
	all := names(rootKeys)
	for _, key := range names(poolKeys) {
		all = append(all, "pool.NAME."+key)
	}
	return all
}

func text[T any](take func(*T, string) error) func(*T, any) error {
	return func(t *T, v any) error {
		s, ok := v.(string)
		if !ok {
			return fmt.Errorf("want a string, got %s", typeName(v))
		}
		return take(t, s)
	}
}

func truth[T any](take func(*T, bool)) func(*T, any) error {
	return func(t *T, v any) error {
		b, ok := v.(bool)
		if !ok {
			return fmt.Errorf("want true or false, got %s", typeName(v))
		}
		take(t, b)
		return nil
	}
}

func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "a table"
	case string:
		return fmt.Sprintf("the string %q", v)
	case bool:
		return fmt.Sprintf("%t", v)
	case int64:
		return fmt.Sprintf("the number %d", v)
	case float64:
		return fmt.Sprintf("the number %v", v)
	case time.Time:
		return "a date"
	default:
		return "an array"
	}
}

// want returns what is wrong unless all is well.
func want(well bool, otherwise string, s string) error {
	if well {
		return nil
	}
	return fmt.Errorf(otherwise, s)
}

func oneOf(s string, allowed ...string) error {
	return want(slices.Contains(allowed, s), "%q is not one of "+strings.Join(allowed, ", "), s)
}

// choice sets a field to one of several words.
func choice[T any](field func(*T) *string, allowed ...string) func(*T, any) error {
	return text(func(t *T, s string) error { *field(t) = s; return oneOf(s, allowed...) })
}

func checkNamespace(s string) error {
	return want(len(validation.IsDNS1123Label(s)) == 0, "%q cannot be a namespace", s)
}

// CheckProvisioner returns what is wrong with a provisioner name: what the API server asks of
// StorageClass.provisioner (k8s.io/kubernetes/pkg/apis/storage/validation.validateProvisioner).
func CheckProvisioner(s string) error {
	if len(validation.IsQualifiedName(strings.ToLower(s))) > 0 {
		return fmt.Errorf("%q cannot be a StorageClass's provisioner", s)
	}
	// kube-controller-manager takes these for plugins of its own and reports that it has none of
	// the name (findProvisionablePlugin in
	// k8s.io/kubernetes/pkg/controller/volume/persistentvolume).
	if strings.HasPrefix(s, "kubernetes.io/") {
		return fmt.Errorf("%q begins with kubernetes.io/, which is reserved for provisioners inside Kubernetes", s)
	}
	return nil
}

func checkNode(s string) error {
	return want(len(validation.IsDNS1123Subdomain(s)) == 0, "%q cannot be a node's name", s)
}

func checkPoolName(s string) error {
	return want(len(validation.IsDNS1123Label(s)) == 0, "%q is not a pool's name: want lower-case letters, "+
		"digits and - between them, 63 at most", s)
}

func checkListen(s string) error {
	if s == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%q is not host:port", s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is not host:port: port %q is not a number up to %d", s, port, math.MaxUint16)
	} else if n == 0 {
		return fmt.Errorf("%q has port 0; want one from 1 to 65535", s)
	}
	return nil
}

func checkPath(s string) error {
	switch {
	case !path.IsAbs(s):
		return fmt.Errorf("%q is not an absolute path", s)
	case strings.ContainsFunc(s, unicode.IsControl):
		return fmt.Errorf("%q has a control character", s)
	case path.Clean(s) != s:
		return fmt.Errorf("path %q is not clean: use %q", s, path.Clean(s))
	case len(s) >= pathMax:
		return fmt.Errorf("%q... has %d bytes, more than the kernel takes for a path", s[:32], len(s))
	}
	for element := range strings.SplitSeq(s, "/") {
		switch {
		case strings.TrimSpace(element) != element:
			return fmt.Errorf("%q has a space at the edge of %q", s, element)
		case len(element) > nameMax:
			return fmt.Errorf("%q... has %d bytes, more than a file system takes for a name", element[:32], len(element))
		}
	}
	return nil
}

// checkKubeletRoot also refuses the root itself, in which kubelet's directories are none of its
// own.
func checkKubeletRoot(s string) error {
	if s == "/" {
		return errors.New("\"/\" is not kubelet's directory")
	}
	return checkPath(s)
}

// pathMax is PATH_MAX of linux/limits.h, with the byte that ends a path.
const pathMax = 4096

// under reports whether p is dir or lies below it. Both are clean.
func under(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

var fsType = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)

func checkFilesystem(s string) error {
	return want(fsType.MatchString(s), "%q is not a filesystem type as in /proc/filesystems", s)
}

// network is server:/export; the server may be an IPv6 address in brackets.
var network = regexp.MustCompile(`^(\[[0-9A-Fa-f:.%a-z]+\]|[^/:\s\[\]]+):/\S*$`)

// selinuxType is what checkmodule(8) takes for an identifier.
var selinuxType = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

func checkSELinuxType(s string) error {
	return want(s == "" || selinuxType.MatchString(s) && len(s) <= 128, "%q cannot be an SELinux type: "+
		"want one such as \"container_file_t\", without user, role and level", s)
}

func checkDevice(s string) error {
	if strings.TrimSpace(s) != s {
		return fmt.Errorf("%q has a space at its edge", s)
	}
	for _, tag := range []string{"UUID=", "LABEL=", "PARTUUID=", "PARTLABEL="} {
		if value, ok := strings.CutPrefix(s, tag); ok && value != "" && !strings.Contains(value, "/") {
			return nil
		}
	}
	if strings.HasPrefix(s, "/dev/") {
		return checkPath(s)
	}
	if network.MatchString(s) {
		return nil
	}
	return fmt.Errorf(`%q is not one of "UUID=..", "LABEL=..", "/dev/..", "server:/export"`, s)
}

// setMode takes octal digits as chmod(1) does. Setuid means nothing on a directory.
func setMode(p *Pool, s string) error {
	bits, err := strconv.ParseUint(s, 8, 32)
	switch {
	case err != nil || len(s) < 3 || len(s) > 5 || bits > 0o7777:
		return fmt.Errorf("%q is not a mode: want octal digits such as \"0777\"", s)
	case bits&0o4000 != 0:
		return fmt.Errorf("%q has the setuid bit, which means nothing on a directory", s)
	}
	p.Mode = fs.FileMode(bits & 0o777)
	if bits&0o2000 != 0 {
		p.Mode |= fs.ModeSetgid
	}
	if bits&0o1000 != 0 {
		p.Mode |= fs.ModeSticky
	}
	return nil
}

func setOwner(p *Pool, s string) (err error) {
	p.Owner = s
	p.UID, err = id(s, "user", func(name string) (string, error) {
		u, err := user.Lookup(name)
		return cmp.Or(u, &user.User{}).Uid, err
	})
	return err
}

func setGroup(p *Pool, s string) (err error) {
	p.Group = s
	p.GID, err = id(s, "group", func(name string) (string, error) {
		g, err := user.LookupGroup(name)
		return cmp.Or(g, &user.Group{}).Gid, err
	})
	return err
}

// id takes a number as it is, whether or not the host knows it (pods run as numbers that no host
// knows), and looks a name up. Names are those of /etc/passwd and /etc/group: the binary is static.
func id(s, kind string, lookup func(string) (string, error)) (int, error) {
	number, numeric := s, s != "" && strings.Trim(s, "0123456789") == ""
	if !numeric {
		found, err := lookup(s)
		if errors.As(err, new(user.UnknownUserError)) || errors.As(err, new(user.UnknownGroupError)) {
			return 0, fmt.Errorf("%q is not a %s of this host", s, kind)
		}
		if err != nil {
			return 0, fmt.Errorf("%s %q: %w", kind, s, err)
		}
		number = found
	}
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil || n == math.MaxUint32 { // (uid_t)-1 means "leave it" to chown(2)
		return 0, fmt.Errorf("%q is not the number of a %s", s, kind)
	}
	return int(n), nil
}

// setReserve takes "5%" of the filesystem or an amount as Kubernetes writes it. An amount with a
// unit is rounded up to a byte ("1.1Gi"); one without a unit is a number of bytes and has to be
// whole: "0.5" was hardly meant.
func setReserve(p *Pool, s string) error {
	p.ReservePercent, p.ReserveBytes = 0, 0
	if number, ok := strings.CutSuffix(s, "%"); ok {
		percent, err := strconv.ParseFloat(number, 64) // which takes "0x1p2", "+5" and "1e1" as well
		if err != nil || strings.Trim(number, "0123456789.") != "" || percent >= 100 {
			return fmt.Errorf("%q is not a percentage from 0 to below 100", s)
		}
		p.ReservePercent = percent
		return nil
	}
	reserve, err := amountOf(s, `neither a percentage ("5%") nor an amount ("10Gi")`)
	if err == nil {
		p.ReserveBytes = reserve
	}
	return err
}

// amountOf is an amount in bytes; otherwise is what a text is that is none.
func amountOf(s, otherwise string) (uint64, error) {
	amount, err := resource.ParseQuantity(s)
	switch {
	case err != nil || amount.Sign() < 0:
		return 0, fmt.Errorf("%q is %s", s, otherwise)
	case strings.ContainsAny(s[len(s)-1:], "mun"): // milli, not mega: 100m is a tenth of a byte
		return 0, fmt.Errorf("%q is a fraction of a byte", s)
	case amount.AsDec().Scale() < -19, amount.CmpInt64(math.MaxInt64) >= 0: // where Value ends; to compare 1e999999999 writes it out
		return 0, fmt.Errorf("%q is more than a filesystem can have", s)
	case unicode.IsDigit(rune(s[len(s)-1])) && amount.CmpInt64(amount.Value()) != 0: // Value rounds up
		return 0, fmt.Errorf("%q is a fraction of a byte", s)
	}
	return uint64(amount.Value()), nil
}

// setOvercommit takes an integer as well: "2" is how most people write 2.0. TOML has inf and nan.
func setOvercommit(p *Pool, v any) error {
	switch v := v.(type) {
	case float64:
		p.Overcommit = v
	case int64:
		p.Overcommit = float64(v)
	default:
		return fmt.Errorf("want a number, got %s", typeName(v))
	}
	if !(p.Overcommit > 0 && p.Overcommit <= overcommitMost) {
		return fmt.Errorf("%v is not a number above 0 and up to %d", v, overcommitMost)
	}
	return nil
}

// overcommitMost is for filesystems on thin storage: of 1 TiB it promises 1 PiB.
const overcommitMost = 1000

func names[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// nearest names the key that was probably meant, if one is at most two letters away.
func nearest(key string, all []string) string {
	best, distance := "", 3
	for _, one := range all {
		if d := edits(key, one); d < distance {
			best, distance = one, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// edits is the Levenshtein distance in bytes.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
