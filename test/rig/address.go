package rig

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// FreeAddress returns an address on which a daemon can serve its metrics. Nothing else takes its
// port before the daemon does: the IP address is a random one of 127.0.0.0/8, and connections to a
// local address come from 127.0.0.1.
func FreeAddress() (string, error) {
	own := net.IPv4(127, byte(1+rand.N(254)), byte(rand.N(256)), byte(1+rand.N(254)))
	l, err := net.Listen("tcp", fmt.Sprintf("%s:0", own))
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
