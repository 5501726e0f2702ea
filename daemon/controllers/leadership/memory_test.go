package leadership

import (
	"reflect"
	"testing"
	"time"
)

// What one elector knew another one knows, with the times counted from its own now.
func TestMemory(t *testing.T) {
	s := &server{}
	h := leading(t, s)
	h.now += time.Second
	m := h.Memory()
	if m.Lease == nil || m.Term == nil || m.Unchanged != time.Second || m.Trusted != Trust-time.Second || m.Worked != "m" {
		t.Fatalf("it knows %+v", m)
	}
	other := standing(s)
	other.now += time.Hour
	other.Remember(m)
	if got := other.Memory(); !reflect.DeepEqual(got, m) {
		t.Errorf("got %+v, want %+v", got, m)
	}
	if !other.Leads() || other.Fence(t.Context()) != nil {
		t.Error("it does not lead")
	}
	if other.Remember(Memory{}); other.Leads() {
		t.Error("it leads without a term")
	}
}
