package model

import "testing"

func TestAdopted(t *testing.T)         { explored(t, "adopted", 30_000) }
func TestAdoptedChanged(t *testing.T)  { explored(t, "adopted-changed", 20_000) }
func TestAdoptedRestored(t *testing.T) { explored(t, "adopted-restored", 40_000) }
func TestAdoptedLost(t *testing.T)     { explored(t, "adopted-lost", 20_000) }
func TestAdoptedArchived(t *testing.T) { explored(t, "adopted-archived", 20_000) }
