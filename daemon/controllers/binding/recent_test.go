package binding

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
)

func TestRecent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recent
		if r.has("a") || r.add("a") || !r.has("a") || !r.add("a") || r.has("b") {
			t.Error("a is noted, b is not")
		}
		time.Sleep(report.Repeat + time.Second) // of the bubble's clock
		if r.has("a") {
			t.Error("a was noted long ago")
		}
		r.add("b")
		if len(r.at) != 1 {
			t.Errorf("%d pods are remembered, want one", len(r.at))
		}
	})
}
