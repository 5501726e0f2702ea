// Command kubelet makes kubelet's calls to the CSI node service that systemd started inside the test machine:
//
//	kubelet ROOT DRIVER registered
//	kubelet ROOT DRIVER publish POD PV POOL PATH
//	kubelet ROOT DRIVER unpublish POD PV
//	kubelet ROOT DRIVER stats POD PV
//
// It knows no cluster, and it asserts nothing: it prints "done", or the error, with exit code 1.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
)

func main() { os.Exit(run(os.Args[1:])) }

const limit = time.Minute // for one call: guest code runs 12 to 17 times slower than the host's

func run(args []string) int {
	if len(args) < 3 {
		fmt.Println("usage: kubelet ROOT DRIVER CALL [ARGUMENT...]")
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	s, err := csinode.Connect(args[0], args[1])
	if err == nil {
		defer s.Close()
		err = call(ctx, s, args[2], args[3:])
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("done")
	return 0
}

func call(ctx context.Context, s *csinode.Service, name string, args []string) error {
	switch {
	case name == "registered" && len(args) == 0:
		driver, endpoint, err := s.Registered(ctx)
		fmt.Println(driver, endpoint)
		return err
	case name == "publish" && len(args) == 4:
		return s.Publish(ctx, args[0], csinode.Of(args[1], args[2], args[3]))
	case name == "unpublish" && len(args) == 2:
		return s.Unpublish(ctx, args[0], args[1])
	case name == "stats" && len(args) == 2:
		return s.Stats(ctx, args[0], args[1])
	}
	return fmt.Errorf("no call %s with %d arguments", name, len(args))
}
