package main

import (
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

func TestLook(t *testing.T) {
	l := look{Foreign: 10, Index: true, Claims: 2, Volumes: 1, Bytes: 3000, Requests: harness.Requests{"list persistentvolumes": 3}}
	const want = "10 volumes of other nodes, hostpath-provisioner, claim index: 1 of 2 claims have a volume; for each claim 1.5 KB and 1.5 requests: 3 list persistentvolumes"
	if got := l.String(); got != want {
		t.Errorf("got %s", got)
	}
}

// An index that was not found, or not found whole, is told from one that was, in both files.
func TestKnows(t *testing.T) {
	for text, want := range map[string]bool{"": false, "\nhostpath-provisioner/claim in (,p)": false, `{"identity":""}`: false, "a/1 b/1\nselection": true, `{"identity":"a/1 b/1"}`: true} {
		if knows([]byte(text)) != want {
			t.Errorf("of %q: %t", text, !want)
		}
	}
}
