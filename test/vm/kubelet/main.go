// Command kubelet makes kubelet's calls to the CSI node service that systemd started inside the
// test machine:
//
//	kubelet ROOT DRIVER registered
//	kubelet ROOT DRIVER publish POD PV POOL PATH
//	kubelet ROOT DRIVER unpublish POD PV
//	kubelet ROOT DRIVER stats POD PV
//	kubelet ROOT DRIVER inline POD NAME POOL SIZE
//	kubelet ROOT DRIVER end POD NAME
//
// and one of the daemon's, which it does not end:
//
//	kubelet ROOT DRIVER pause POOL PV
//
// It knows no cluster, and it asserts nothing: it prints "done", or the error, with exit code 1.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/pause"
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
	case name == "inline" && len(args) == 4:
		v := csinode.Inline(args[0], args[1], map[string]string{"storagePool": args[2], "size": args[3]})
		fmt.Println(v.PV)
		return s.Publish(ctx, args[0], v)
	case name == "end" && len(args) == 2:
		return s.UnpublishInline(ctx, args[0], csinode.Inline(args[0], args[1], nil))
	case name == "pause" && len(args) == 2:
		return holdPause(ctx, pause.Client{Socket: pause.SocketPath(s.Root, s.Driver)}, args[0], args[1])
	}
	return fmt.Errorf("no call %s with %d arguments", name, len(args))
}

// holdPause has the pods of a volume stand still until something else has them go on.
func holdPause(ctx context.Context, c pause.Client, pool, volume string) error {
	paused, p, err := c.Begin(ctx, pool, volume)
	if err != nil {
		return err
	}
	fmt.Println("paused", p.Pods)
	<-paused.Done()
	_, err = p.End()
	return err
}
