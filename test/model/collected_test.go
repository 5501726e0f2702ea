package model

import "testing"

func TestCollected(t *testing.T)         { explored(t, "every-collected", 20_000) }
func TestCollectedKilled(t *testing.T)   { explored(t, "every-collected-killed", 0) }
func TestCollectedPolicies(t *testing.T) { explored(t, "every-collected-policies", 20_000) }
func TestCollectedRestored(t *testing.T) { explored(t, "every-collected-restored", 15_000) }
func TestCollectedArchived(t *testing.T) { explored(t, "every-collected-archived", 15_000) }
