package daemon

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/confine"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// The daemon tells by itself that the files on disk are not what it runs with, once they have been
// left alone for a moment, and takes it back when they are again.
func TestConfigurationThatIsNotInForce(t *testing.T) {
	d, g := newDaemon(t)
	d.confined = &confine.Confined{ABI: 7}
	d.Config = filepath.Join(hosttest.Dir(t), "config.toml")
	write := func(text string, age time.Duration) {
		t.Helper()
		if err := os.WriteFile(d.Config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(d.Config, then, then); err != nil {
			t.Fatal(err)
		}
	}
	const pool = "node = 'node-a'\n[pool.p]\npath = '/srv/p'\n"
	good := fmt.Sprintf("kubeconfig = '%s'\n", g.cfg.Kubeconfig) + pool
	write(good, time.Minute)
	cfg, err := config.Load(d.Config, d.StateDir, d.RuntimeDir)
	if err != nil {
		t.Fatal(err)
	}
	g.cfg = cfg
	log, lines := logged()
	d.Log = log
	for _, step := range []struct {
		name, text string
		age        time.Duration
		why, says  string
		logged     int
	}{
		{"what it runs with", good, time.Minute, "", "", 0},
		{"being written", good + "moed = 1\n", time.Second, "", "", 0},
		{"a typo", good + "moed = 1\n", time.Minute, whyErrors, `unknown key; did you mean "mode"?`, 1},
		{"the same typo", good + "moed = 1\n\n", time.Minute, whyErrors, `unknown key`, 1},
		{"a comment", good + "# noted\n", time.Minute, "", "", 1},
		{"another value", good + "mode = '0700'\n", time.Minute, whyDiffers, "not reloaded", 2},
		{"what needs a restart", "confine = false\n" + good, time.Minute, whyRestart, "restarted", 3},
		{"of a clock that is ahead", good + "\n\n", -time.Hour, "", "", 3},
	} {
		write(step.text, step.age)
		d.compareFiles(g)
		d.compareFiles(g)
		is := g.differs.Load()
		if is == nil {
			is = &difference{}
		}
		if is.why != step.why || !strings.Contains(is.message, step.says) ||
			(step.why == "") != (is.message == "") {
			t.Errorf("%s: %+v", step.name, is)
		}
		if n := strings.Count(lines.String(), "reason=ConfigurationNotInForce"); n != step.logged {
			t.Errorf("%s: logged %d times, want %d\n%s", step.name, n, step.logged, lines.String())
		}
		if s := g.status(); s.OldConfig != (step.why != "") || s.Config != is.message ||
			!strings.HasPrefix(s.Sentence, is.sentenceOrNone()) {
			t.Errorf("%s: status %+v", step.name, s)
		}
	}
	// A reload that was refused for more than the files have says why.
	g.differs.Store(&difference{whyErrors, "kubeconfig x: no such file or directory", true})
	write(good+"mode = '0711'\n", time.Minute)
	if d.compareFiles(g); g.differs.Load().why != whyErrors {
		t.Errorf("after a reload that was refused: %+v", g.differs.Load())
	}
}

func (f *difference) sentenceOrNone() string {
	if f.why == "" {
		return ""
	}
	return f.sentence()
}

// The parameters of a watch's URL are no part of a status line.
func TestErrorWithoutQuery(t *testing.T) {
	const bare = "https://10.0.0.1:6443/api/v1/persistentvolumes"
	of := &url.Error{Op: "Get", URL: bare + "?allowWatchBookmarks=true&resourceVersion=7", Err: syscall.ECONNREFUSED}
	want := `list: Get "` + bare + `": connection refused`
	if got := withoutQuery(fmt.Errorf("list: %w", of)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := withoutQuery(syscall.ECONNREFUSED); got != "connection refused" {
		t.Error(got)
	}
}
