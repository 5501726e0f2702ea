package footprint

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"

	"k8s.io/client-go/tools/clientcmd"
)

// Meter is a TCP proxy before an API server that counts what the server sends, TLS included.
type Meter struct {
	net.Listener
	server   string
	received atomic.Int64
}

// NewMeter returns a meter before the server of a URL. Close ends it.
func NewMeter(url string) (*Meter, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &Meter{Listener: lis, server: strings.TrimPrefix(url, "https://")}
	go m.serve()
	return m, nil
}

// Received returns the bytes that the server sent so far.
func (m *Meter) Received() int64 { return m.received.Load() }

func (m *Meter) serve() {
	for {
		client, err := m.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		server, err := net.Dial("tcp", m.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
		go func() { _, _ = io.Copy(countingWriter{client, &m.received}, server); _ = client.Close() }()
	}
}

type countingWriter struct {
	io.Writer
	n *atomic.Int64
}

func (w countingWriter) Write(data []byte) (int, error) {
	w.n.Add(int64(len(data)))
	return w.Writer.Write(data)
}

// Kubeconfig writes a copy of a kubeconfig that leads through the meter.
func (m *Meter) Kubeconfig(of, to string) error {
	config, err := clientcmd.LoadFromFile(of)
	if err != nil {
		return err
	}
	for _, c := range config.Clusters {
		c.Server = "https://" + m.Addr().String()
	}
	return clientcmd.WriteToFile(*config, to)
}
