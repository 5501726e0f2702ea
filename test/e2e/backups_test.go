package e2e

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pages"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// backups is a host on which the page's commands are run, for one of the programs.
type backups struct {
	*host
	dir     string // stands for /mnt/backup
	program string // "restic", "borg"
	setup   string
	all     []pages.Block
}

// docs/backups.md: each recipe, on volumes of a daemon. A claim is backed up and lost, and a new
// one has all of it; so has one from a snapshot. A slip stops, and changes nothing.
func TestBackupsPage(t *testing.T) {
	t.Parallel()
	for program, sources := range map[string][2]string{"restic": {"local", "hostPath"}, "borg": {"csi", "local"}} {
		t.Run(program, func(t *testing.T) {
			w := newEnvironment(t)
			s := w.snapshots()
			h := w.newHostOn(hosttest.Mkfs(w, "xfs", 320), "a", `snapshots = "live"`).run()
			b := h.backups(program)
			w.driver()
			class := w.Class("c", immediate, fixture.Parameters("source", sources[0]))
			pv := w.bound("data", class, "100Mi")
			dir := filepath.Join(h.mount, pv.Name)
			b.fill(dir)
			want := b.tree(dir)
			b.follow(b.block(1))
			s.take("snap", pv)
			w.Removes("data", pv.Name)
			w.vanishes(h.record(pv.Name))
			b.stops(b.block(1)) // no such claim
			b.stops(b.block(2)) // no claim to restore into
			b.restores(class, want)
			class = w.Class("other", immediate, fixture.Parameters("source", sources[1]))

			ofSnapshot := b.tree(filepath.Join(h.mount, b.snapshot()))
			b.follow(b.snapshotted())
			b.restores(class, ofSnapshot)
			b.wantBackups(2)
			b.byHand(pv.Name)
		})
	}
}

func (h *host) backups(program string) *backups {
	h.w.Helper()
	b := &backups{host: h, dir: hosttest.Dir(h.w), program: program}
	h.w.Must(os.WriteFile(filepath.Join(b.dir, "password"), []byte("secret\n"), 0o600))
	call, script := h.Command("..."), "#!/bin/sh\nexec env"
	for _, v := range call.Env {
		if strings.HasPrefix(v, "STATE_DIRECTORY=") || strings.HasPrefix(v, "RUNTIME_DIRECTORY=") {
			script += " '" + v + "'"
		}
	}
	script += " " + strings.Replace(strings.Join(call.Args, " "), "...", `"$@"`, 1) + "\n"
	h.w.Must(os.WriteFile(filepath.Join(b.dir, "hostpath-provisioner"), []byte(script), 0o700))
	var err error
	b.all, err = pages.Open(rig.Root()).Take("backups.md", "With "+program, "sh", 0, 1, 2)
	h.w.Must(err)
	first, _, _ := strings.Cut(b.block(0), "\n")
	b.follow(b.block(0))
	b.setup = first + "\n"
	return b
}

func (b *backups) block(n int) string { return b.all[n].Text }

// snapshotted is a backup as the page changes it for a snapshot.
func (b *backups) snapshotted() string {
	b.w.Helper()
	first := need(pages.Open(rig.Root()).Take("backups.md", "While pods write", "sh", 0))(b.w)
	lines := strings.SplitAfterN(b.block(1), "\n", 3)
	return first[0].Text + lines[2]
}

func (b *backups) snapshot() string {
	b.w.Helper()
	first := need(pages.Open(rig.Root()).Take("backups.md", "While pods write", "sh", 0))(b.w)
	return strings.TrimSpace(b.follow(strings.TrimSuffix(first[0].Text, "&&\n") + "&& echo \"$name\"\n"))
}

// run runs commands of the page as a shell does that somebody pastes them into.
func (b *backups) run(text string) (string, error) {
	text = strings.NewReplacer("/srv/fast", b.mount, "/mnt/backup", b.dir, "default/", b.w.Namespace+"/",
		"--namespace default", "--namespace "+b.w.Namespace).Replace(b.setup + text)
	return b.w.sh(b.dir, b.w.Kubeconfig(), text)
}

func (b *backups) follow(text string) string {
	b.w.Helper()
	out, err := b.run(text)
	if err != nil {
		b.w.Fatalf("%s: %v\n%s", text, err, out)
	}
	return out
}

// stops wants commands to fail, and to leave the pool as it is.
func (b *backups) stops(text string) {
	b.w.Helper()
	was := b.tree(b.mount)
	if out, err := b.run(text); err == nil {
		b.w.Errorf("%s is successful:\n%s", text, out)
	}
	b.same(b.tree(b.mount), was)
}

// wantBackups wants so many, and none that a command made which stopped.
func (b *backups) wantBackups(n int) {
	b.w.Helper()
	all := b.follow(map[string]string{
		"restic": "restic snapshots --json | jq -r '.[].short_id'", "borg": "borg list --short"}[b.program])
	if got := strings.Count(all, "\n"); got != n {
		b.w.Errorf("%d backups, want %d:\n%s", got, n, all)
	}
}

// restores makes a claim, restores into it as the page says, and compares; then the claim goes.
func (b *backups) restores(class string, want []string) {
	b.w.Helper()
	pv := b.w.bound("restored", class, "100Mi", annotate(provisionOnNode, b.node))
	b.follow(b.block(2))
	got := b.tree(filepath.Join(b.mount, pv.Name))
	if b.program == "restic" { // the page: it has not the directory's own owner and mode
		want, got = want[1:], got[1:]
	}
	b.same(got, want)
	b.stops(b.block(2)) // there are files
	b.w.Removes("restored", pv.Name)
}

// byHand puts a directory where a volume was: it is none.
func (b *backups) byHand(name string) {
	b.w.Helper()
	b.w.Must(os.Mkdir(filepath.Join(b.mount, name), 0o755))
	out := b.follow(`hostpath-provisioner volumes fast --json | jq -r '.volumes[] | select(.directory == "` + name + `").state'`)
	if out != "foreign\n" {
		b.w.Errorf("it is %q", out)
	}
}

func (b *backups) same(got, want []string) {
	b.w.Helper()
	if !slices.Equal(got, want) {
		b.w.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// fill writes what the page says is kept.
func (b *backups) fill(dir string) {
	b.w.Helper()
	below := filepath.Join(dir, "below")
	file := filepath.Join(below, "file")
	b.w.Must(os.Mkdir(below, 0o755))
	b.w.Must(os.WriteFile(file, []byte("data"), 0o640))
	b.w.Must(os.WriteFile(filepath.Join(dir, ".hidden"), nil, 0o600))
	b.w.Must(os.Link(file, filepath.Join(dir, "hard")))
	b.w.Must(os.WriteFile(filepath.Join(dir, "holes"), []byte("begins"), 0o600))
	b.w.Must(os.Truncate(filepath.Join(dir, "holes"), 64<<20))
	b.w.Must(os.Symlink("nowhere", filepath.Join(dir, "link")))
	b.w.Must(os.Lchown(filepath.Join(dir, "link"), 7, 8))
	b.w.Must(unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	b.w.Must(os.Chown(file, 1234, 5678))
	b.w.Must(unix.Chmod(file, 0o4750))
	b.w.Must(unix.Setxattr(file, "user.key", []byte("value"), 0))
	b.w.Must(unix.Setxattr(file, "trusted.key", []byte("value"), 0))
	b.w.Must(unix.Setxattr(below, "system.posix_acl_default", acl, 0))
	b.w.Must(unix.Setxattr(file, "system.posix_acl_access", acl, 0))
	b.w.Must(os.Chown(dir, 99, 98))
	b.w.Must(unix.Chmod(dir, 0o2770))
}

// acl is user::rwx,user:1234:r--,group::r-x,mask::r-x,other::--- as the kernel has it.
var acl = []byte("\x02\x00\x00\x00" +
	"\x01\x00\x07\x00\xff\xff\xff\xff" + "\x02\x00\x04\x00\xd2\x04\x00\x00" + "\x04\x00\x05\x00\xff\xff\xff\xff" +
	"\x10\x00\x05\x00\xff\xff\xff\xff" + "\x20\x00\x00\x00\xff\xff\xff\xff")

// tree is a line for each thing below a directory, itself first: all that the page says is kept.
func (b *backups) tree(dir string) (all []string) {
	b.w.Helper()
	b.w.Must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		var st unix.Stat_t
		b.w.Must(unix.Lstat(path, &st))
		line := fmt.Sprintf("%s %o %d:%d", name, st.Mode, st.Uid, st.Gid)
		if path != dir { // whose time is that of the restore
			line += fmt.Sprintf(" %d.%09d", st.Mtim.Sec, st.Mtim.Nsec)
		}
		if !d.IsDir() {
			line += fmt.Sprintf(" links %d size %d", st.Nlink, st.Size)
		}
		if name == "holes" && b.program == "borg" {
			line += fmt.Sprintf(" holes %t", st.Blocks*512 < st.Size/2)
		}
		if d.Type()&fs.ModeSymlink != 0 {
			all = append(all, line+" "+need(os.Readlink(path))(b.w))
			return nil
		}
		if d.Type().IsRegular() {
			line += fmt.Sprintf(" %x", sha256.Sum256(need(os.ReadFile(path))(b.w)))
		}
		all = append(all, line+b.attributes(path))
		return nil
	}))
	return all
}

// attributes are the extended attributes of what is no link, sorted.
func (b *backups) attributes(path string) (all string) {
	b.w.Helper()
	list := make([]byte, 4096)
	n := need(unix.Llistxattr(path, list))(b.w)
	keys := strings.FieldsFunc(string(list[:n]), func(r rune) bool { return r == 0 })
	slices.Sort(keys)
	for _, key := range keys {
		value := make([]byte, 4096)
		n := need(unix.Lgetxattr(path, key, value))(b.w)
		all += fmt.Sprintf(" %s=%x", key, value[:n])
	}
	return all
}
