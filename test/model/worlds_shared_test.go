package model

import "testing"

func TestShared(t *testing.T)          { explored(t, "shared", 0) }
func TestSharedKilled(t *testing.T)    { explored(t, "shared-killed", 0) }
func TestSharedPolicies(t *testing.T)  { explored(t, "shared-policies", 0) }
func TestSharedDeleted(t *testing.T)   { explored(t, "shared-deleted", 0) }
func TestSharedStopped(t *testing.T)   { explored(t, "shared-stopped", 30_000) }
func TestSharedRestored(t *testing.T)  { explored(t, "shared-restored", 30_000) }
func TestSharedBetween(t *testing.T)   { explored(t, "shared-between", 300_000) }
func TestSharedChanged(t *testing.T)   { explored(t, "shared-changed", 250_000) }
func TestSharedGone(t *testing.T)      { explored(t, "shared-gone", 30_000) }
func TestSharedArchived(t *testing.T)  { explored(t, "shared-archived", 20_000) }
func TestSharedUnmounted(t *testing.T) { explored(t, "shared-unmounted", 20_000) }
func TestSharedBeside(t *testing.T)    { explored(t, "shared-beside", 20_000) }
func TestSharedLabels(t *testing.T)    { explored(t, "shared-labels", 20_000) }
