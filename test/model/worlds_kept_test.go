package model

import "testing"

func TestKeptVolume(t *testing.T)   { explored(t, "kept", 0) }
func TestKeptDeleted(t *testing.T)  { explored(t, "kept-deleted", 20_000) }
func TestKeptLosses(t *testing.T)   { explored(t, "kept-losses", 20_000) }
func TestKeptAgain(t *testing.T)    { explored(t, "kept-again", 20_000) }
func TestKeptRestored(t *testing.T) { explored(t, "kept-restored", 20_000) }
func TestKeptWatches(t *testing.T)  { explored(t, "kept-watches", 20_000) }
