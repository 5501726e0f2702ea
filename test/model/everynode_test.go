package model

import "testing"

func TestEvery(t *testing.T)         { explored(t, "every", 0) }
func TestEveryKilled(t *testing.T)   { explored(t, "every-killed", 0) }
func TestEveryPolicies(t *testing.T) { explored(t, "every-policies", 0) }
func TestEveryGone(t *testing.T)     { explored(t, "every-gone", 50_000) }
func TestEveryRestored(t *testing.T) { explored(t, "every-restored", 60_000) }
func TestEveryLost(t *testing.T)     { explored(t, "every-lost", 40_000) }
func TestEveryArchived(t *testing.T) { explored(t, "every-archived", 40_000) }
func TestEveryHalfway(t *testing.T)  { explored(t, "every-halfway", 40_000) }
func TestEveryAgain(t *testing.T)    { explored(t, "every-again", 40_000) }
