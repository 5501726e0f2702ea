package model

import "testing"

func TestDiskSwapped(t *testing.T)        { explored(t, "swapped", 15_000) }
func TestDiskCopied(t *testing.T)         { explored(t, "copied-disk", 20_000) }
func TestDiskCopiedKilled(t *testing.T)   { explored(t, "copied-disk-killed", 20_000) }
func TestDiskCopiedRestored(t *testing.T) { explored(t, "copied-disk-restored", 20_000) }
func TestSharedDiskSwapped(t *testing.T)  { explored(t, "shared-swapped", 20_000) }
func TestSharedDiskCopied(t *testing.T)   { explored(t, "shared-copied", 20_000) }
func TestSharedCopiedKilled(t *testing.T) { explored(t, "shared-copied-killed", 20_000) }
func TestDiskMountedTwice(t *testing.T)   { explored(t, "twice", 20_000) }

// A filesystem with the pool's marker is in order on the pool's node alone, and one with another
// marker nowhere.
func TestMarkersAreJudged(t *testing.T) {
	other := markOf(nodePool)
	other.ID = "another"
	for found, want := range map[judgement]bool{{0, nodePool, markOf(nodePool)}: true, {1, nodePool, markOf(nodePool)}: false, {0, nodePool, other}: false, {1, sharedPool, markOf(sharedPool)}: true} {
		if judged[found] != want {
			t.Errorf("%+v is in order: %t", found, judged[found])
		}
	}
}
