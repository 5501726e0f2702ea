// Command agent runs inside the test machine: it takes commands over a virtio-serial port and
// returns what they printed.
//
// Requests and responses are lines of JSON; several commands may run at once, and a response
// carries its request's number. It will not decide anything, and it has no authority of its own: it
// is a shell that can be reached.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// port is the character device of the port with this name in qemu's arguments.
const port = "/dev/virtio-ports/test"

type request struct {
	ID      int    `json:"id"`
	Command string `json:"command"` // for sh -c
}

type response struct {
	ID     int    `json:"id"`
	Output string `json:"output"` // of both streams
	Code   int    `json:"code"`
}

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func serve() error {
	file, err := os.OpenFile(port, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(a response) {
		mu.Lock()
		defer mu.Unlock()
		data, _ := json.Marshal(a) // strings and numbers always can be
		file.Write(append(data, '\n'))
	}
	say(response{}) // number 0: here I am
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err // the service manager starts it again
		}
		var r request
		if json.Unmarshal([]byte(line), &r) == nil {
			go func() { say(execute(r)) }()
		}
	}
}

func execute(r request) response {
	var out strings.Builder
	cmd := exec.Command("/bin/sh", "-c", r.Command)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return response{r.ID, err.Error(), -1}
	}
	return response{r.ID, out.String(), cmd.ProcessState.ExitCode()}
}
