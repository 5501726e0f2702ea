package model

import "testing"

func TestSharedGrown(t *testing.T)        { explored(t, "shared-grown", 20_000) }
func TestSharedGrownKilled(t *testing.T)  { explored(t, "shared-grown-killed", 20_000) }
func TestSharedGrownStopped(t *testing.T) { explored(t, "shared-grown-stopped", 40_000) }
func TestSharedLastSpace(t *testing.T)    { explored(t, "shared-last-space", 20_000) }
