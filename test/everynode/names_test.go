package everynode

// Names of before, for tests that are being written beside.
type world = environment

var newWorld = newEnvironment
