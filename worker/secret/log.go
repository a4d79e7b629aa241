package secret

import (
	"context"
	"fmt"
	"log/slog"
)

// Handler returns a handler that takes the secrets out of what goes to h:
// messages, and attributes of every kind. It is h itself when r knows none.
func (r *Redactor) Handler(h slog.Handler) slog.Handler {
	if r == nil {
		return h
	}
	return handler{h, r}
}

type handler struct {
	slog.Handler

	r *Redactor
}

func (h handler) Handle(ctx context.Context, rec slog.Record) error {
	clean := slog.NewRecord(rec.Time, rec.Level, h.r.String(rec.Message), rec.PC)
	rec.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(h.attr(a))
		return true
	})
	return h.Handler.Handle(ctx, clean)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = h.attr(a)
	}
	return handler{h.Handler.WithAttrs(clean), h.r}
}

func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name), h.r} }

// attr redacts one attribute. What is no text is left as it is, unless its text
// has a secret in it.
func (h handler) attr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		var group []slog.Attr
		for _, inner := range v.Group() {
			group = append(group, h.attr(inner))
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(group...)}
	}
	text := v.String()
	if v.Kind() == slog.KindAny {
		text = fmt.Sprintf("%+v", v.Any())
	}
	if clean := h.r.String(text); clean != text {
		v = slog.StringValue(clean)
	}
	return slog.Attr{Key: a.Key, Value: v}
}
