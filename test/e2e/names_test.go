package e2e

// Names of before, for tests that are being written beside.
type world = environment

var newWorld = newEnvironment
