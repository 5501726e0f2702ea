package killer

// harmlessHere are calls that other architectures do not have.
var harmlessHere []uint32
