package model

import "testing"

func TestLate(t *testing.T)         { explored(t, "late", 6_000) }
func TestLateKilled(t *testing.T)   { explored(t, "late-killed", 2_000) }
func TestLateRetained(t *testing.T) { explored(t, "late-retained", 40_000) }
func TestLateAgain(t *testing.T)    { explored(t, "late-again", 2_000) }
func TestLateGrown(t *testing.T)    { explored(t, "late-grown", 2_000) }
func TestLateShared(t *testing.T)   { explored(t, "late-shared", 2_000) }
