package confine

var refusedHere []uint32

func (p program) older(uint32) program { return p }
