package model

import "testing"

func TestCloned(t *testing.T)         { explored(t, "cloned", 0) }
func TestClonedAgain(t *testing.T)    { explored(t, "cloned-again", 8_000) }
func TestClonedLosses(t *testing.T)   { explored(t, "cloned-losses", 6_000) }
func TestClonedRestored(t *testing.T) { explored(t, "cloned-restored", 45_000) }
func TestClonedRaced(t *testing.T)    { explored(t, "cloned-raced", 4_000) }
