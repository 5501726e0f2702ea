package systemd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

type claim struct{ namespace, name string }

func (c claim) LogValue() slog.Value {
	return slog.GroupValue(slog.String("namespace", c.namespace), slog.String("claim", c.name))
}

func TestJournalRecords(t *testing.T) {
	receive := hosttest.Journal(t)
	hosttest.OnJournal(t, 0)
	log := slog.New(NewHandler(os.Stderr, slog.LevelInfo))
	for _, c := range []struct {
		say  func()
		want map[string]string
	}{
		{func() { log.Info("volume made", "pool", "fast", "pv", "pvc-1", "took", 1500*time.Microsecond) }, map[string]string{
			"MESSAGE": "volume made pool=fast pv=pvc-1 took=1.5ms", "PRIORITY": "6",
			"HOSTPATH_POOL": "fast", "HOSTPATH_PV": "pvc-1", "HOSTPATH_TOOK": "1.5ms",
		}},
		{func() { log.Warn("pool closed", "message", "not mounted", "n", 3, "none", "") }, map[string]string{
			"MESSAGE": `pool closed message="not mounted" n=3 none=""`, "PRIORITY": "4",
			"HOSTPATH_MESSAGE": "not mounted", "HOSTPATH_N": "3", "HOSTPATH_NONE": "",
		}},
		{func() { log.Info("claim provisioned", "reason", "ProvisioningSucceeded") }, map[string]string{
			"MESSAGE": "claim provisioned reason=ProvisioningSucceeded", "PRIORITY": "6", "HOSTPATH_REASON": "ProvisioningSucceeded", "MESSAGE_ID": MessageID("ProvisioningSucceeded"),
		}},
		{func() { log.Error("refused", "err", errors.New("first\nsecond")) }, map[string]string{
			"MESSAGE": `refused err="first\nsecond"`, "PRIORITY": "3", "HOSTPATH_ERR": "first\nsecond",
		}},
		{func() {
			log.With("pool", "fast").WithGroup("disk").With("dev", "sda").Info("seen", "free", 5, slog.Group("inodes", "n", 7), slog.Group("", "in", "line"))
		}, map[string]string{
			"MESSAGE": "seen pool=fast disk.dev=sda disk.free=5 disk.inodes.n=7 disk.in=line", "PRIORITY": "6",
			"HOSTPATH_POOL": "fast", "HOSTPATH_DISK_DEV": "sda", "HOSTPATH_DISK_FREE": "5", "HOSTPATH_DISK_INODES_N": "7", "HOSTPATH_DISK_IN": "line",
		}},
		{func() {
			log.WithGroup("").Info("", "of", claim{"shop", "data"}, slog.Attr{}, "at", time.Unix(0, 0).UTC())
		}, map[string]string{
			"MESSAGE": " of.namespace=shop of.claim=data at=1970-01-01T00:00:00Z", "PRIORITY": "6",
			"HOSTPATH_OF_NAMESPACE": "shop", "HOSTPATH_OF_CLAIM": "data", "HOSTPATH_AT": "1970-01-01T00:00:00Z",
		}},
		{func() { log.Info("key", "größe in/µm", 1, strings.Repeat("k", 80), 2) }, map[string]string{
			"MESSAGE": "key größe in/µm=1 " + strings.Repeat("k", 80) + "=2", "PRIORITY": "6",
			"HOSTPATH_GR__E_IN__M": "1", "HOSTPATH_" + strings.Repeat("K", 55): "2",
		}},
	} {
		c.say()
		c.want["SYSLOG_IDENTIFIER"] = "hostpath-provisioner"
		if got := receive(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("got\n%q\nwant\n%q", got, c.want)
		}
	}
	if log.Debug("below the level"); log.Enabled(context.Background(), slog.LevelDebug) {
		t.Error("debug records are wanted at level info")
	}
	log.Info("next")
	if got := receive()["MESSAGE"]; got != "next" {
		t.Errorf("%q came first", got)
	}
}

// A logger never loses a record to a journal that is away: the stream it inherited still takes
// text.
func TestJournalAway(t *testing.T) {
	hosttest.Mount(t, "-t", "tmpfs", "journal", "/run")
	t.Cleanup(func() { hosttest.UnmountLazy(t, "/run") })
	var text bytes.Buffer
	fallback := slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: noTime})
	log := slog.New(&journalHandler{level: slog.LevelInfo, fallback: fallback})
	log.With("pool", "fast").WithGroup("disk").Info("seen", "free", 5)
	if got, want := text.String(), "level=INFO msg=seen pool=fast disk.free=5\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func noTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// Plain text everywhere but on the very stream that JOURNAL_STREAM names: a redirected stderr keeps
// the variable.
func TestWhichHandler(t *testing.T) {
	hosttest.OnJournal(t, 0)
	if _, ok := NewHandler(os.Stderr, slog.LevelInfo).(*journalHandler); !ok {
		t.Error("stderr is the journal and gets text")
	}
	if _, ok := NewHandler(new(bytes.Buffer), slog.LevelInfo).(*slog.TextHandler); !ok {
		t.Error("a buffer gets journal records")
	}
	for _, stream := range []string{"", "1:2", "nonsense"} {
		t.Setenv("JOURNAL_STREAM", stream)
		if _, ok := NewHandler(os.Stderr, slog.LevelInfo).(*slog.TextHandler); !ok {
			t.Errorf("JOURNAL_STREAM=%q: journal records", stream)
		}
	}
}

// A line of text to the journal has a priority; anywhere else it is only text.
func TestLinePrefix(t *testing.T) {
	var stat unix.Stat_t
	if err := unix.Fstat(1, &stat); err != nil {
		t.Fatal(err)
	}
	t.Setenv("JOURNAL_STREAM", fmt.Sprintf("%d:%d", stat.Dev, stat.Ino))
	for level, want := range map[slog.Level]string{slog.LevelError: "<3>", slog.LevelWarn: "<4>", slog.LevelInfo: "<6>"} {
		if got := LinePrefix(os.Stdout, level); got != want {
			t.Errorf("%s: %q, want %q", level, got, want)
		}
	}
	if got := LinePrefix(&bytes.Buffer{}, slog.LevelError); got != "" {
		t.Errorf("a buffer: %q", got)
	}
	t.Setenv("JOURNAL_STREAM", "")
	if got := LinePrefix(os.Stdout, slog.LevelError); got != "" {
		t.Errorf("without the journal: %q", got)
	}
}
