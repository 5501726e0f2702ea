package state

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
)

const (
	portFile   = "port"
	lowestPort = 10000
	portTries  = 100
)

// Port is the API server's port: the one of the earlier run, else a free one. It
// is remembered, so that a client sees the API server come back where it was.
func (d *Dir) Port(address string) (int, error) {
	port, err := d.rememberedPort()
	if port == 0 && err == nil {
		port, err = freePort(address)
	}
	if err != nil {
		return 0, err
	}
	return port, d.write(portFile, 0o600, []byte(strconv.Itoa(port)+"\n"))
}

func (d *Dir) rememberedPort() (int, error) {
	data, err := os.ReadFile(d.Path(portFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}

// freePort looks below the range from which the kernel takes the source ports
// of outgoing connections. A port out of that range would not be safe while
// the API server is down: another connection could be given it, and a client
// that redials a loopback port in that range can even end up connected to
// itself. Either way the API server could not come back on its port.
func freePort(address string) (int, error) {
	ceiling, err := ephemeralFloor()
	if err != nil {
		return 0, err
	}
	if ceiling <= lowestPort {
		return 0, fmt.Errorf("no ports between %d and the ephemeral ones, which begin at %d", lowestPort, ceiling)
	}
	for range portTries {
		port := lowestPort + rand.IntN(ceiling-lowestPort)
		l, listenErr := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		if listenErr == nil {
			return port, l.Close()
		}
		err = listenErr
	}
	return 0, fmt.Errorf("no free port after %d tries: %w", portTries, err)
}

func ephemeralFloor() (int, error) {
	const file = "/proc/sys/net/ipv4/ip_local_port_range"
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	var low, high int
	if _, err := fmt.Sscan(string(data), &low, &high); err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return low, nil
}
