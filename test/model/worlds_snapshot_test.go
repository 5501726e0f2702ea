package model

import "testing"

func TestSnapshot(t *testing.T)         { explored(t, "snapshot", 20_000) }
func TestSnapshotLosses(t *testing.T)   { explored(t, "snapshot-losses", 15_000) }
func TestSnapshotSource(t *testing.T)   { explored(t, "snapshot-source", 15_000) }
func TestSnapshotEnds(t *testing.T)     { explored(t, "snapshot-ends", 20_000) }
func TestSnapshotRaced(t *testing.T)    { explored(t, "snapshot-raced", 15_000) }
func TestSnapshotRestored(t *testing.T) { explored(t, "snapshot-restored", 20_000) }
func TestSnapshotForced(t *testing.T)   { explored(t, "snapshot-forced", 20_000) }
func TestSnapshotLost(t *testing.T)     { explored(t, "snapshot-lost", 20_000) }
