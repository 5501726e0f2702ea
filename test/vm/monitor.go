package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// monitor talks QMP (qemu's docs/interop/qmp-spec): a line of JSON for each command and response.
type monitor struct {
	net.Conn
	lines *bufio.Reader
}

func (m *machine) monitor() (*monitor, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := m.dial(ctx, "qmp.sock")
	if err != nil {
		return nil, err
	}
	q := &monitor{conn, bufio.NewReader(conn)}
	conn.SetDeadline(time.Now().Add(3 * time.Minute))
	if _, err := q.call("qmp_capabilities", nil); err != nil {
		conn.Close()
		return nil, err
	}
	return q, nil
}

// call sends a command and returns its result; events that come in between are dropped.
func (q *monitor) call(command string, arguments any) (map[string]any, error) {
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	line, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	if _, err := q.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	for {
		line, err := q.lines.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("%s: %w", command, err)
		}
		var reply struct {
			Return map[string]any   `json:"return"`
			Error  *json.RawMessage `json:"error"`
		}
		if json.Unmarshal(line, &reply) != nil {
			continue // a list
		}
		if reply.Error != nil {
			return nil, fmt.Errorf("%s: %s", command, *reply.Error)
		}
		if reply.Return != nil {
			return reply.Return, nil
		}
	}
}

// until calls until the response's status is this one.
func (q *monitor) until(command, status string) error {
	for {
		reply, err := q.call(command, nil)
		if err != nil {
			return err
		}
		switch reply["status"] {
		case status:
			return nil
		case "failed", "cancelled":
			return fmt.Errorf("%s: %v", command, reply)
		}
		time.Sleep(20 * time.Millisecond) // between two questions
	}
}

// save stops the machine and writes its state, without its disks.
func (m *machine) save(file string) error {
	q, err := m.monitor()
	if err != nil {
		return err
	}
	defer q.Close()
	if _, err := q.call("stop", nil); err != nil {
		return err
	}
	if _, err := q.call("migrate", map[string]any{"uri": "exec:cat > " + file}); err != nil {
		return err
	}
	if err := q.until("query-migrate", "completed"); err != nil {
		return err
	}
	_, err = q.call("quit", nil)
	<-m.exited
	return err
}

// resume lets a machine go on whose state was read.
func (m *machine) resume() error {
	q, err := m.monitor()
	if err != nil {
		return err
	}
	defer q.Close()
	if err := q.until("query-status", "paused"); err != nil {
		return err
	}
	_, err = q.call("cont", nil)
	return err
}
