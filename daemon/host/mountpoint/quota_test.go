package mountpoint

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// limits writes the pools with project quotas that the configuration has.
func (env *environment) limits(pools ...QuotaPool) { env.write("quotas", pools) }

// broken has a configuration with errors, and these pools of an earlier one.
func (env *environment) broken(kept ...QuotaPool) {
	must(env.t, os.Remove(filepath.Join(env.dir, "quotas")))
	env.write("kept", kept)
}

func (env *environment) write(file string, pools []QuotaPool) {
	env.t.Helper()
	text, err := json.Marshal(pools)
	must(env.t, err)
	must(env.t, os.WriteFile(filepath.Join(env.dir, file), text, 0o600))
}

// asking is the calls for a path, which are made by the service.
func (env *environment) asking(path string) *Quotas {
	q := QuotasOf(path)
	q.Client = env.client
	return q
}

// request asks for the filesystem of a directory.
func (env *environment) request(path, on string, r quotaRequest) error {
	env.t.Helper()
	root, err := unix.Open(on, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(env.t, err)
	defer unix.Close(root)
	_, err = env.asking(path).request(root, r)
	return err
}

// The service makes the kernel's calls, here on a filesystem without quotas, for the pools of the
// configuration, on the filesystem that the asker means, and limits projects of the pool's range
// alone.
func TestQuotaRequests(t *testing.T) {
	pool, other := hosttest.Dir(t), hosttest.Dir(t)
	link := filepath.Join(hosttest.Dir(t), "link")
	must(t, os.Symlink(pool, link))
	elsewhere := filepath.Join(hosttest.Dir(t), "mounted")
	must(t, os.Mkdir(elsewhere, 0o700))
	tmpfs(t, elsewhere)
	env := newEnvironment(t)
	env.limits(QuotaPool{pool, 100, 199}, QuotaPool{link, 100, 199})
	made := []string{unix.ENOSYS.Error(), unix.ESRCH.Error()}
	for name, c := range map[string]struct {
		path, on string
		r        quotaRequest
		want     []string
	}{
		"get":                      {pool, pool, quotaRequest{Call: callGet, ID: 7}, made},
		"from":                     {pool, pool, quotaRequest{Call: callFrom}, made},
		"the first":                {pool, pool, quotaRequest{Call: callSet, ID: 100}, made},
		"the last":                 {pool, pool, quotaRequest{Call: callSet, ID: 199, Limit: quota.Limit{Bytes: 1}}, made},
		"below the range":          {pool, pool, quotaRequest{Call: callSet, ID: 99}, []string{`no configured pool at "` + pool + `" with quota = "project" and project 99`}},
		"above the range":          {pool, pool, quotaRequest{Call: callSet, ID: 200}, []string{"and project 200"}},
		"no project":               {pool, pool, quotaRequest{Call: callSet}, []string{"and project 0"}},
		"another directory":        {other, other, quotaRequest{Call: callGet, ID: 100}, []string{"no configured pool"}},
		"another spelling":         {pool + "/", pool, quotaRequest{Call: callGet, ID: 100}, []string{"no configured pool"}},
		"nothing":                  {"", pool, quotaRequest{Call: callSet, ID: 100}, []string{"no configured pool"}},
		"a link":                   {link, pool, quotaRequest{Call: callSet, ID: 100}, []string{unix.ELOOP.Error(), unix.ENOTDIR.Error()}},
		"another filesystem":       {pool, elsewhere, quotaRequest{Call: callSet, ID: 100}, []string{"lies on device"}},
		"a call that there is not": {pool, pool, quotaRequest{Call: "off", ID: 100}, []string{`unknown call "off"`}},
	} {
		err := env.request(c.path, c.on, c.r)
		said := false
		for _, want := range c.want {
			said = said || err != nil && strings.Contains(err.Error(), want)
		}
		if !said {
			t.Errorf("%s: %v, want one of %q", name, err, c.want)
		}
	}
	env.limits(QuotaPool{other, 300, 300})
	if err := env.request(other, other, quotaRequest{Call: callSet, ID: 300}); err == nil || strings.Contains(err.Error(), "no configured pool") {
		t.Errorf("configured by now: %v", err)
	}
	if err := env.request(pool, pool, quotaRequest{Call: callSet, ID: 100}); err == nil || !strings.Contains(err.Error(), "no configured pool") {
		t.Errorf("not configured any more, when the configuration was read: %v", err)
	}
	must(t, os.Remove(filepath.Join(env.dir, "quotas")))
	if err := env.request(other, other, quotaRequest{Call: callSet, ID: 300}); err == nil || strings.Contains(err.Error(), "no configured pool") {
		t.Errorf("without a configuration that can be read: %v", err)
	}
	if err := env.request(pool, pool, quotaRequest{Call: callSet, ID: 100}); err == nil || !strings.Contains(err.Error(), "cannot read the configuration") {
		t.Errorf("not known, without a configuration that can be read: %v", err)
	}
}

// While the configuration has errors, the pools that the service knew count, and those of the last
// valid configuration: the daemon may go on with either. When it is valid again, its own count
// alone.
func TestQuotaPoolsOfBothConfigurations(t *testing.T) {
	known, kept := hosttest.Dir(t), hosttest.Dir(t)
	env := newEnvironment(t)
	refused := func(pool string) string {
		if err := env.request(pool, pool, quotaRequest{Call: callSet, ID: 100}); !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.ESRCH) {
			return err.Error()
		}
		return ""
	}
	env.limits(QuotaPool{known, 100, 199})
	if got := refused(known); got != "" {
		t.Fatal(got)
	}
	env.broken(QuotaPool{kept, 100, 199})
	if got := refused(kept) + refused(known); got != "" {
		t.Error(got)
	}
	env.limits(QuotaPool{known, 300, 399})
	for _, pool := range []string{kept, known} {
		refused(hosttest.Dir(t)) // has the configuration read
		if got := refused(pool); !strings.Contains(got, "no configured pool") {
			t.Errorf("%s, with a valid configuration: %q", pool, got)
		}
	}
}

// What is no request is dropped, leaves no descriptor, and the next request is served by the same
// process.
func TestQuotaGarbage(t *testing.T) {
	pool := hosttest.Dir(t)
	env := newEnvironment(t)
	env.limits(QuotaPool{pool, 100, 199})
	served := func(when string) {
		t.Helper()
		if err := env.request(pool, pool, quotaRequest{Call: callGet, ID: 100}); !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.ESRCH) {
			t.Fatalf("%s: %v", when, err)
		}
	}
	served("at first")
	before := env.descriptors()
	_, end := pair(t, unix.SOCK_SEQPACKET)
	for _, text := range []string{"{", "{}", `{"id":-1}`, `{"id":4294967296}`, `{"call":5}`, `{"path":"` + strings.Repeat("/", longest) + `"}`, "{\x00}"} {
		for range 50 {
			must(t, env.send(text, end))
		}
		served("after " + text[:min(len(text), 20)])
		env.settles(before, text)
	}
}

// Many at once are all served, though fewer may wait.
func TestManyQuotaRequests(t *testing.T) {
	pool := hosttest.Dir(t)
	env := newEnvironment(t)
	env.limits(QuotaPool{pool, 100, 199})
	root, err := unix.Open(pool, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(root)
	q := env.asking(pool)
	var all sync.WaitGroup
	for range 10 * mostWaiting {
		all.Go(func() {
			if _, err := q.request(root, quotaRequest{Call: callGet, ID: 100}); !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.ESRCH) {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// A creation makes three requests, if the daemon may not make the calls itself.
func BenchmarkQuotaRequest(b *testing.B) {
	pool := hosttest.Dir(b)
	env := newEnvironment(b)
	env.limits(QuotaPool{pool, 100, 199})
	for b.Loop() {
		if err := env.request(pool, pool, quotaRequest{Call: callGet, ID: 100}); !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.ESRCH) {
			b.Fatal(err)
		}
	}
}
