package confine

var olderTimes map[uintptr]string
