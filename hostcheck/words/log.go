package words

import (
	"context"
	"log/slog"
)

// logMax is the longest message of a log record in bytes: all errors of a configuration are one.
const logMax = 4 * MessageMax

// Handler makes every record one line of bounded length, whatever it was told, before next gets it.
func Handler(next slog.Handler) slog.Handler { return handler{next} }

type handler struct{ slog.Handler }

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	plain := slog.NewRecord(r.Time, r.Level, Line(r.Message, logMax), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		plain.AddAttrs(attr(a))
		return true
	})
	return h.Handler.Handle(ctx, plain)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	plain := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		plain[i] = attr(a)
	}
	return handler{h.Handler.WithAttrs(plain)}
}

func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }

// attr has a string in place of whatever can be long.
func attr(a slog.Attr) slog.Attr {
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindString, slog.KindAny:
		return slog.String(a.Key, Line(v.String(), MessageMax))
	case slog.KindGroup:
		group := make([]slog.Attr, len(v.Group()))
		for i, inner := range v.Group() {
			group[i] = attr(inner)
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(group...)}
	default:
		return a
	}
}
