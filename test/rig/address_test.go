package rig

import (
	"net"
	"testing"
)

// No connection takes a port at the address before a daemon listens: those to it come from another
// one.
func TestFreeAddress(t *testing.T) {
	address, err := FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if from := c.LocalAddr().(*net.TCPAddr).IP; from.Equal(l.Addr().(*net.TCPAddr).IP) {
		t.Errorf("a connection to %s comes from %s", address, from)
	}
}
