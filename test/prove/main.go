// Command prove plays one trial of the product on a real kernel, with real filesystems and, where it
// needs one, a real API server: prove NAME [flags]. "prove NAME -h" says more of each.
//
// It decides nothing: each trial is a package of its own, and their frame is test/harness.
package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cost"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/crash"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/demo"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hang"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hostile"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/model"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/weather"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if code, is := crash.Again(); is {
		return code
	}
	trials := []harness.Trial{
		crash.Trial(), weather.Storm(), hang.Trial(), hostile.Trial(), weather.Chaos(),
		weather.Soak(), weather.Upgrade(), model.Trial(),
		cost.Fleet(), cost.Scale(),
	}
	if len(args) > 0 && args[0] == "demo" {
		return demo.Main()
	}
	i := slices.IndexFunc(trials, func(t harness.Trial) bool { return len(args) > 0 && t.Name == args[0] })
	if i < 0 {
		fmt.Fprint(os.Stderr, "usage: prove NAME [flags], where NAME is demo")
		for _, t := range trials {
			fmt.Fprint(os.Stderr, ", ", t.Name)
		}
		fmt.Fprintln(os.Stderr)
		return 2
	}
	return trials[i].Main(args[1:])
}
