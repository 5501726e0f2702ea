package main

import (
	"fmt"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/pages"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// selinuxPage are the blocks of commands of docs/selinux.md that run here, and what they have to
// say. The one that makes container_file_t is left to image/build.sh, which does the same when the
// machine is made: it wants packages from the network.
var selinuxPage = []struct {
	heading string
	number  int
	want    []string
}{
	{"Labels", 0, []string{" entries looked at, 0 to relabel", "pool fast: 1 volume, 1 entries looked at, 0 relabelled"}},
	{"The policy module", 0, []string{"selinux-module: loaded", ":hostpath_provisioner_t:s0"}},
	{"The policy module", 1, []string{"selinux-module: loaded", "relabelled"}},
	{"The policy module", 2, []string{"(filecon", "/srv/fast\tsystem_u:object_r:hostpath_provisioner_pool_t:s0", "/srv/fast/pvc-1\tsystem_u:object_r:container_file_t:s0"}},
	{"When something is refused", 0, []string{"hostpath_provisioner_t"}},
}

// page runs them as they stand there, with the name of a volume in place of the page's, and without
// ausearch, whose daemon is not in the machine. It fails when the page gets a command that is not
// listed above.
func (p *play) page() {
	p.step("the commands of docs/selinux.md", func() (string, error) {
		_, dir := must2(p.bound("fast"))
		here := strings.NewReplacer("pvc-868797d1-8b46-48eb-8be3-96ec25281b88", dir[strings.LastIndexByte(dir, '/')+1:],
			"ausearch -m avc -c hostpath-provisi\n", "")
		doc := pages.Open(rig.Root())
		for _, b := range selinuxPage {
			blocks := must(doc.Take("selinux.md", b.heading, "sh", b.number))
			said, err := p.policy("set -e\n" + here.Replace(blocks[0].Text)) // some compile it
			if err != nil {
				return "", fmt.Errorf("%s: %w", blocks[0], err)
			}
			for _, want := range b.want {
				if !strings.Contains(said, want) {
					return "", fmt.Errorf("%s: no %q in\n%s", blocks[0], want, said)
				}
			}
		}
		left := must(doc.Left("selinux.md"))
		if len(left) != 1 || left[0].Heading != "Debian and Ubuntu" {
			return "", fmt.Errorf("no chapter runs %q", left)
		}
		return fmt.Sprintf("%d blocks", len(selinuxPage)), nil
	})
}
