package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/mountpoint"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// serveMountPoints is the program as systemd starts it, but for the host's directory. The
// configuration has a directory of its own, in which Landlock lets it read.
func serveMountPoints(base string) int {
	p := &program{host: base, stdout: os.Stdout, stderr: os.Stderr, now: time.Now}
	return p.run([]string{"mountpoint", "--config", base + "/etc/config.toml", "--state-dir", base + "/state", "--runtime-dir", base + "/run"}, strings.NewReader(""))
}

// mountPointService starts a process of the service, which ends with the test.
func mountPointService(h *host) mountpoint.Client {
	h.t.Helper()
	path := filepath.Join(hosttest.Dir(h.t), "socket")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	h.must(err)
	held, err := conn.File()
	h.must(err)
	conn.Close()
	defer held.Close()
	self, err := os.Executable()
	h.must(err)
	// What passes the socket is sd_listen_fds(3): LISTEN_PID is the process that serves.
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ exec unshare --mount --propagation slave "$0"`, self)
	cmd.Env = append(os.Environ(), childEnv+"=mountpoint "+h.base, "LISTEN_FDS=1", "LISTEN_FDNAMES=mountpoint")
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{held}
	h.must(cmd.Start())
	h.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return mountpoint.Client{Socket: path, Grace: 10 * time.Second}
}

// configure writes the configuration, and what the generator reads.
func configure(h *host, text string) {
	h.t.Helper()
	h.write("config.toml", text)
	h.write("etc/config.toml", text)
}

// A process of the service that starts while the configuration has errors looks under the mount
// points of the last valid one that the generator read, and for no other path.
func TestMountPointsOfLastValidConfiguration(t *testing.T) {
	h := newHost(t, "")
	valid := strings.ReplaceAll("node = 'a'\n[pool.fast]\npath = 'BASE/fast'\n[pool.other]\npath = 'BASE/other'\nimmutable = 'off'\n", "BASE", h.base)
	for _, dir := range []string{"fast", "other"} {
		h.must(os.Mkdir(h.path(dir), 0o700))
		hosttest.SetImmutable(t, h.path(dir), true)
	}
	looks := func(when, dir string, want hostcheck.Trouble) {
		t.Helper()
		if b := mountPointService(h).Under(h.path(dir), 20*time.Second); b.Trouble != want || b.Immutable != (want == "") {
			t.Errorf("%s: %s: %+v", when, dir, b)
		}
	}
	configure(h, "pool = 5\n")
	looks("nothing is kept", "fast", hostcheck.NotPermitted)

	configure(h, valid)
	generated(t, h)
	configure(h, "pool = 5\n")
	looks("a kept list", "fast", "")
	looks("a kept list", "other", hostcheck.NotPermitted)

	h.write(kept+"/"+mountPointsFile, `["`+h.path("fast")+`"`)
	looks("a list written in part", "fast", hostcheck.NotPermitted)

	configure(h, strings.Replace(valid, "[pool.fast]", "[pool.fast]\nimmutable = 'off'", 1))
	h.write(kept+"/"+mountPointsFile, `["`+h.path("fast")+`"]`)
	looks("a valid configuration counts alone", "fast", hostcheck.NotPermitted)
}

// The same for the limits of projects, of pools and numbers that the last valid configuration has.
func TestQuotaPoolsOfLastValidConfiguration(t *testing.T) {
	h := newHost(t, "")
	h.must(os.Mkdir(h.path("fast"), 0o700))
	var device unix.Stat_t
	h.must(unix.Stat(h.path("fast"), &device))
	limits := func(when string, project uint32, want string) {
		t.Helper()
		// A request for limits is sent as one for a look is. The filesystem here has none, which is
		// no refusal of the service.
		request := fmt.Sprintf(`{"call":"set","path":%q,"major":%d,"minor":%d,"id":%d}`, h.path("fast"), unix.Major(device.Dev), unix.Minor(device.Dev), project)
		if b := mountPointService(h).Under(request, 20*time.Second); !strings.Contains(b.Error, want) || want == "" && b.Error != "" {
			t.Errorf("%s: %+v", when, b)
		}
	}
	configure(h, "pool = 5\n")
	limits("nothing is kept", 100, "cannot read the configuration")

	configure(h, strings.ReplaceAll("node = 'a'\n[pool.fast]\npath = 'BASE/fast'\nquota = 'project'\nquota_ids = [100, 199]\n", "BASE", h.base))
	generated(t, h)
	configure(h, "pool = 5\n")
	limits("a kept list", 100, "")
	limits("a project of no kept range", 200, "cannot read the configuration")

	configure(h, strings.ReplaceAll("node = 'a'\n[pool.fast]\npath = 'BASE/fast'\n", "BASE", h.base))
	limits("a valid configuration counts alone", 100, "no configured pool")
}
