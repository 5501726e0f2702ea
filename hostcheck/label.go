package hostcheck

import (
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

// label asks for the pool's label. What cannot be read is "".
func label(on mounts.Mount, fileType string, fd int) LabelFact {
	if !slices.Contains(strings.Split(on.Options, ","), seclabel) && !slices.Contains(strings.Split(on.SuperOptions, ","), seclabel) {
		return LabelFact{}
	}
	got, _ := selinux.Of(fd)
	return LabelFact{
		Looked: true, Type: selinux.Type(got),
		Unknown: fileType != "" && selinux.Lacks(fileType), PoolKnown: selinux.Knows(selinux.PoolType),
	}
}

// seclabel is what SELinux shows among the options of a mount whose files have labels of their own
// (selinux_sb_show_options in security/selinux/hooks.c). NFS without labels has it not: all its
// files have one type, which cannot be set.
const seclabel = "seclabel"

// CheckSELinux looks at what SELinux, in this mode, does with the daemon itself: whether our policy
// module is loaded. Where SELinux is off there is nothing to say.
func CheckSELinux(mode string, loaded bool) []Finding {
	if mode == "disabled" || loaded {
		return nil
	}
	f, _ := when(true, Warn, ReasonUnconfined,
		"SELinux is %s and the policy module of hostpath-provisioner is not loaded, so that nothing confines the daemon", mode)
	return []Finding{f}
}
