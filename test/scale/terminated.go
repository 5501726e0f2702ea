package main

import (
	"context"
	"fmt"
	"strings"
)

// terminated returns how many watches the API server has ended by itself because their buffers of
// events were full, by resource (apiserver_terminated_watchers_total; apiserver,
// pkg/storage/cacher, cacheWatcher.add).
func (s *scale) terminated(ctx context.Context) map[string]int {
	text, err := s.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	s.Must(err, "reading the API server's metrics")
	return terminatedIn(string(text))
}

// terminatedIn reads the counters in the text format of Prometheus.
func terminatedIn(text string) map[string]int {
	all := map[string]int{}
	for line := range strings.Lines(text) {
		rest, is := strings.CutPrefix(line, "apiserver_terminated_watchers_total{")
		labels, value, _ := strings.Cut(rest, "} ")
		_, resource, known := strings.Cut(labels, `resource="`)
		var n float64
		if _, err := fmt.Sscan(value, &n); !is || !known || err != nil {
			continue
		}
		resource, _, _ = strings.Cut(resource, `"`)
		all[resource] += int(n)
	}
	return all
}
