package main

import (
	"maps"
	"testing"
)

func TestTerminatedIn(t *testing.T) {
	got := terminatedIn(`# TYPE apiserver_terminated_watchers_total counter
apiserver_terminated_watchers_total{group="",resource="persistentvolumeclaims"} 12
apiserver_terminated_watchers_total{group="storage.k8s.io",resource="storageclasses"} 1e+03
apiserver_terminated_watchers_totals{resource="pods"} 3
apiserver_request_total{resource="pods"} 4
`)
	if want := map[string]int{"persistentvolumeclaims": 12, "storageclasses": 1000}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
