package model

import "testing"

func TestGrown(t *testing.T)         { explored(t, "grown", 0) }
func TestGrownLosses(t *testing.T)   { explored(t, "grown-losses", 0) }
func TestGrownRestored(t *testing.T) { explored(t, "grown-restored", 0) }
func TestLastSpace(t *testing.T)     { explored(t, "last-space", 50_000) }
func TestRaced(t *testing.T)         { explored(t, "raced", 15_000) }
