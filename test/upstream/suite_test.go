// Package upstream is Kubernetes' own suite for external storage, and its tests of StatefulSets, as
// a program. test/nodes runs it on its kubelets: make test-upstream.
//
// It has no tests of its own and leaves none of theirs out: what a driver can do stands in its
// definition (*.yaml), and the suite skips what needs more, with a reason.
package upstream

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"k8s.io/kubernetes/test/e2e"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	manifests "k8s.io/kubernetes/test/e2e/testing-manifests"
	"k8s.io/kubernetes/test/fixtures"
	"k8s.io/kubernetes/test/utils/image"

	_ "k8s.io/kubernetes/test/e2e/apps"                   // StatefulSets
	_ "k8s.io/kubernetes/test/e2e/feature"                // the names of features, which labels are checked against
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"   // shows pods and events of a test that failed
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init" // the framework wants it
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"    // waits for nodes after each test
	_ "k8s.io/kubernetes/test/e2e/storage/external"       // --storage.testdriver
)

// images are those that the tests run, and the program that serves in each one's place: agnhost
// with a shell beside it, or the shell alone. The tests run commands in nginx and
// glibc-dns-testing, nothing of theirs.
var images = map[image.ImageID]string{
	image.Agnhost: "agnhost", image.AgnhostPrev: "agnhost", image.Pause: "agnhost",
	image.BusyBox: "busybox", image.Nginx: "busybox", image.GlibcDnsTesting: "busybox",
}

// TestMain reads the command line as upstream's e2e_test.go does.
func TestMain(m *testing.M) {
	list := flag.Bool("images", false, "print the images that the tests run, each after its program, and end")
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	if *list {
		for id, program := range images {
			fmt.Println(program, image.GetE2EImage(id))
		}
		os.Exit(0)
	}
	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	testfiles.AddFileSource(fixtures.GetTestFixturesFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	testfiles.AddFileSource(testfiles.RootFileSource{Root: framework.TestContext.RepoRoot})
	os.Exit(m.Run())
}

func TestE2E(t *testing.T) { e2e.RunE2ETests(t) }
