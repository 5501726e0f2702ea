package systemd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
)

// identifier is what journalctl shows before the colon. Without it that is the first 15 bytes of
// the command's name (_COMM), which is not ours alone.
const identifier = "hostpath-provisioner"

// fieldPrefix keeps our fields apart from those that the journal gives a meaning to
// (systemd.journal-fields(7)): `journalctl HOSTPATH_POOL=fast`.
const fieldPrefix = "HOSTPATH_"

// NewHandler makes a handler for everything that the process logs at level and above. Where stderr
// is the process's stderr and that is the journal (JOURNAL_STREAM names it), a record goes there
// with its attributes as fields; anywhere else it is a line of plain text.
func NewHandler(stderr io.Writer, level slog.Leveler) slog.Handler {
	plain := slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})
	if !IsJournal(stderr) {
		return plain
	}
	return &journalHandler{level: level, fallback: plain}
}

// IsJournal reports whether stderr is the process's stderr and that is the journal.
func IsJournal(stderr io.Writer) bool {
	if stderr != os.Stderr {
		return false
	}
	is, err := journal.StderrIsJournalStream()
	return err == nil && is
}

// LinePrefix is what gives a line of text that goes to the journal the priority of level
// (sd-daemon(3), SyslogLevelPrefix=), and "" where out, stdout or stderr, is not the journal.
// Without it a line has priority info, and `journalctl -p warning` leaves it out.
func LinePrefix(out io.Writer, level slog.Level) string {
	is, err := journal.StderrIsJournalStream()
	if out == os.Stdout {
		is, err = journal.StdoutIsJournalStream()
	}
	if err != nil || !is || out != os.Stdout && out != os.Stderr {
		return ""
	}
	return fmt.Sprintf("<%d>", priority(level))
}

// journalHandler writes records in the journal's native protocol.
type journalHandler struct {
	level    slog.Leveler
	attrs    []pair
	group    string       // "a.b." in front of every key
	fallback slog.Handler // takes what the journal does not
}

// pair is one attribute, its groups flattened into the key.
type pair struct{ key, value string }

func (h *journalHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	pairs := slices.Clone(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		pairs = flatten(pairs, h.group, a)
		return true
	})
	fields := map[string]string{"SYSLOG_IDENTIFIER": identifier}
	for _, p := range pairs {
		fields[fieldName(p.key)] = p.value
		if p.key == reasonKey && p.value != "" {
			fields["MESSAGE_ID"] = MessageID(p.value)
		}
	}
	if err := journal.Send(sentence(r.Message, pairs), priority(r.Level), fields); err != nil {
		// journald may be restarting. Its stream, which is stderr, outlives that.
		return h.fallback.Handle(ctx, r)
	}
	return nil
}

func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.attrs = slices.Clone(h.attrs)
	for _, a := range attrs {
		with.attrs = flatten(with.attrs, h.group, a)
	}
	with.fallback = h.fallback.WithAttrs(attrs)
	return &with
}

func (h *journalHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	with := *h
	with.group = h.group + name + "."
	with.fallback = h.fallback.WithGroup(name)
	return &with
}

// flatten appends what an attribute says to pairs, under the rules of slog.Handler: an empty
// attribute is nothing, and a group without a name is part of its parent.
func flatten(pairs []pair, group string, a slog.Attr) []pair {
	v := a.Value.Resolve()
	switch {
	case a.Key == "" && v.Kind() != slog.KindGroup:
		return pairs
	case v.Kind() == slog.KindTime:
		return append(pairs, pair{group + a.Key, v.Time().Format(time.RFC3339Nano)})
	case v.Kind() != slog.KindGroup:
		return append(pairs, pair{group + a.Key, v.String()})
	case a.Key != "":
		group += a.Key + "."
	}
	for _, inner := range v.Group() {
		pairs = flatten(pairs, group, inner)
	}
	return pairs
}

// sentence is what people read: journalctl shows no other field.
func sentence(message string, pairs []pair) string {
	var b strings.Builder
	b.WriteString(message)
	for _, p := range pairs {
		value := p.value
		if value == "" || strings.ContainsAny(value, " \t\r\n\"=") {
			value = strconv.Quote(value)
		}
		b.WriteString(" " + p.key + "=" + value)
	}
	return b.String()
}

// fieldName makes a field's name of a key: journald drops a field with other letters than these, or
// more than 64 of them (journal_field_valid in systemd).
func fieldName(key string) string {
	name := strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(key))
	return fieldPrefix + name[:min(len(name), 64-len(fieldPrefix))]
}

func priority(level slog.Level) journal.Priority {
	switch {
	case level >= slog.LevelError:
		return journal.PriErr
	case level >= slog.LevelWarn:
		return journal.PriWarning
	case level >= slog.LevelInfo:
		return journal.PriInfo
	default:
		return journal.PriDebug
	}
}

// reasonKey is the attribute that tells kinds of records apart.
const reasonKey = "reason"

// MessageID is the MESSAGE_ID of records with a reason (systemd.journal-fields(7)), by which
// `journalctl --catalog` finds the entry in the packages' catalog. It is derived from the reason,
// so that it is the same in each version and on each host, and has the form of a random UUID, as
// sd-id128(3) requires.
func MessageID(reason string) string {
	sum := sha256.Sum256([]byte("hostpath-provisioner message " + reason))
	id := sum[:16]
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return hex.EncodeToString(id)
}
