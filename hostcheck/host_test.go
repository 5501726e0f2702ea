package hostcheck

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// kubevirt's, from the documentation of its legacy hostpath provisioner.
const chconUnit = `[Unit]
Description=Set SELinux label for hostpath provisioner
Before=kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStartPre=-mkdir -p /var/hpvolumes
ExecStart=/usr/bin/chcon -Rt container_file_t /var/hpvolumes

[Install]
WantedBy=multi-user.target
`

func TestCheckHost(t *testing.T) {
	const etc, run = "etc/systemd/system/" + unit, "run/systemd/system/" + unit
	shadowed := func(where, command string) Finding {
		return Finding{ReasonUnitShadowed, "/" + where + " comes before the unit of the package and runs \"" + command + "\"", Warn}
	}
	for _, c := range []struct {
		name  string
		files map[string]string // "-> target" is a link
		want  []Finding
	}{
		{"nothing", nil, nil},
		{"only the package's", map[string]string{"usr/lib/systemd/system/" + unit: chconUnit}, nil},
		{"ours, by hand", map[string]string{etc: "[Service]\nType=notify\nExecStart=/usr/local/bin/hostpath-provisioner run\n"}, nil},
		{"ours, with a prefix", map[string]string{etc: "[Service]\nExecStart = -/opt/hostpath-provisioner\n"}, nil},
		{"kubevirt's", map[string]string{etc: chconUnit}, []Finding{shadowed(etc, "/usr/bin/chcon -Rt container_file_t /var/hpvolumes")}},
		{"two", map[string]string{etc: chconUnit, run: "[Service]\nExecStart=/bin/true\n"}, []Finding{
			shadowed(etc, "/usr/bin/chcon -Rt container_file_t /var/hpvolumes"), shadowed(run, "/bin/true"),
		}},
		{"over two lines", map[string]string{etc: "[Service]\nExecStart=/bin/sh \\\n  -c x\n"}, []Finding{shadowed(etc, "/bin/sh    -c x")}},
		{"the last counts", map[string]string{etc: "[Service]\nExecStart=/bin/true\nExecStart=\nExecStart=/usr/bin/hostpath-provisioner\n"}, nil},
		{"no command", map[string]string{etc: "[Unit]\n"}, []Finding{shadowed(etc, "")}},
		{"masked", map[string]string{etc: "-> /dev/null"}, []Finding{{ReasonUnitMasked, "/" + etc + " is a link to /dev/null, so that systemd does not start " + unit, Warn}}},
		{"masked by emptiness", map[string]string{etc: ""}, []Finding{{ReasonUnitMasked, "/" + etc + " is empty, so that systemd does not start " + unit, Warn}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := CheckHost(hostRoot(t, c.files)); !reflect.DeepEqual(got, c.want) {
				t.Fatalf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestCheckHostUnreadable(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "etc/systemd/system", unit), 0o755)) // a directory
	got := CheckHost(os.DirFS(dir))
	if len(got) != 1 || got[0].Reason != ReasonUnitShadowed || got[0].Severity != Warn {
		t.Fatalf("%+v", got)
	}
}

func hostRoot(t *testing.T, files map[string]string) fs.FS {
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		if len(text) > 3 && text[:3] == "-> " {
			must(t, os.Symlink(text[3:], file))
		} else {
			must(t, os.WriteFile(file, []byte(text), 0o644))
		}
	}
	return os.DirFS(dir)
}
