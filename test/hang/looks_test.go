package hang

import (
	"slices"
	"testing"
)

func TestEach(t *testing.T) {
	all := []usage{{1, 9, 4, 5}, {3, 7, 4, 6}, {2, 8, 4, 7}}
	if got := each(all, slices.Max); got != (usage{3, 9, 4, 7}) {
		t.Errorf("the most is %+v", got)
	}
	if got := each(all, slices.Min); got != (usage{1, 7, 4, 5}) {
		t.Errorf("the least is %+v", got)
	}
}
