package model

import "testing"

func TestScopeShared(t *testing.T)   { explored(t, "scope-shared", 0) }
func TestScopeAlone(t *testing.T)    { explored(t, "scope-alone", 0) }
func TestScopeTaken(t *testing.T)    { explored(t, "scope-taken", 20_000) }
func TestScopeRestored(t *testing.T) { explored(t, "scope-restored", 20_000) }
func TestScopeDeleted(t *testing.T)  { explored(t, "scope-deleted", 20_000) }
