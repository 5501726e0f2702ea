package weather

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// apart is how far the daemon's clock is from the API server's.
const apart = 10 * time.Minute

// clockEnv is read by the binary that skewed builds: seconds to add to the clock.
const clockEnv = "CHAOS_CLOCK"

// skewed builds the daemon from the same source with another clock, which is the daemon's alone:
// Go's package time is compiled with a Now that adds what the environment says (go build -overlay).
// A time namespace has no wall clock, and libfaketime cannot reach a static binary.
//
// That is everything the daemon knows of the time of day: times it writes and compares, and the
// validity of certificates. Times that the kernel writes (files) stay right, as do intervals.
func skewed(dir string) (string, error) {
	overlay, err := writeOverlay(filepath.Join(rig.Root(), ".build", "clock"))
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "hostpath-provisioner-skewed")
	build := exec.Command("go", "build", "-trimpath", "-overlay", overlay, "-o", binary, "./cmd/hostpath-provisioner")
	build.Dir = rig.Root()
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // the build cache's key is the Makefile's
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the daemon with another clock: %w\n%s", err, out)
	}
	return binary, nil
}

// The change to package time.
const (
	clockCall = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	clockSkew = "\tsec, nsec, mono := runtimeNow()\n\tsec += chaosClock\n\tif mono == 0 {"
	clockFile = `package time

import "syscall"

var chaosClock = readChaosClock()

func readChaosClock() int64 {
	text, _ := syscall.Getenv("` + clockEnv + `")
	n, _ := atoi(text)
	return int64(n)
}
`
)

// writeOverlay writes package time's changed files, and returns the file that names them. The paths
// stay the same from run to run, which keeps the build cache warm.
func writeOverlay(dir string) (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	standard := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	source, err := os.ReadFile(filepath.Join(standard, "time.go"))
	if err != nil {
		return "", err
	}
	if strings.Count(string(source), clockCall) != 1 {
		return "", fmt.Errorf("%s is not what it was: see clock.go", filepath.Join(standard, "time.go"))
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for name, text := range map[string]string{
		"time.go":       strings.Replace(string(source), clockCall, clockSkew, 1),
		"chaosclock.go": clockFile,
	} {
		overlay.Replace[filepath.Join(standard, name)] = filepath.Join(dir, name)
		if err := write(filepath.Join(dir, name), []byte(text)); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, write(file, text)
}

func write(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}
