package wake

import (
	"context"
	"testing"
	"time"
)

func TestWait(t *testing.T) {
	news := make(chan struct{}, 1)
	Signal(news)
	Signal(news) // of which the first was not taken: it does not block
	ended, end := context.WithCancel(t.Context())
	end()
	for name, one := range map[string]struct {
		ctx  context.Context
		d    time.Duration
		news <-chan struct{}
		want bool
	}{
		"news":                     {t.Context(), time.Hour, news, true},
		"the time":                 {t.Context(), time.Millisecond, nil, true},
		"the end":                  {ended, time.Hour, nil, false},
		"the end, and the time is": {ended, 0, nil, false},
	} {
		if got := Wait(one.ctx, one.d, one.news); got != one.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
