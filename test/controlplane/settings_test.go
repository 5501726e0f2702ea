package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/controlplane/internal/state"
)

func TestSettings(t *testing.T) {
	s, err := parseSettings([]string{"--dir=d", "--kcm-qps=100", "--kcm-flag=--a=1,2", "--kcm-flag=--b"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if s.dir != "d" || s.kcmQPS != 100 || s.address != "127.0.0.1" || s.nodeGrace.Hours() != 8760 {
		t.Errorf("%+v", s)
	}
	// A comma is part of a component's flag and not a separator.
	if got := strings.Join(s.kcmExtra, " "); got != "--a=1,2 --b" {
		t.Errorf("extra flags %q", got)
	}
}

func TestSettingsTellsEveryErrorAtOnce(t *testing.T) {
	_, err := parseSettings([]string{"--address=nowhere", "--port=70000", "--service-cidr=x"}, io.Discard)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"--dir is required",
		`--address "nowhere" is not an IP address`,
		"--port 70000 is not a port",
		`--service-cidr "x" is not a CIDR`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
}

func TestHelp(t *testing.T) {
	var out strings.Builder
	if _, err := parseSettings([]string{"--help"}, &out); !errors.Is(err, pflag.ErrHelp) {
		t.Errorf("%v", err)
	}
	if !strings.Contains(out.String(), "--node-monitor-grace-period") {
		t.Errorf("help:\n%s", out.String())
	}
}

func TestFirstServiceIP(t *testing.T) {
	if got, err := firstServiceIP("10.96.0.0/16"); err != nil || got != "10.96.0.1" {
		t.Errorf("%s, %v", got, err)
	}
}

// Every flag that we give a component must be one that it has: a release of
// Kubernetes that drops one should fail here and not at a start.
func TestComponentsKnowTheirFlags(t *testing.T) {
	s, err := parseSettings([]string{"--dir=" + t.TempDir(), "--kcm-qps=1", "--kcm-burst=1", "--scheduler-qps=1"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := state.Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if _, err := parseAPIServer(apiserverFlags(dir, s, 1)); err != nil {
		t.Error(err)
	}
	if _, err := parseControllerManager(controllerManagerFlags(dir, s, "kubeconfig")); err != nil {
		t.Error(err)
	}
	if _, err := parseScheduler(schedulerFlags(s, "kubeconfig")); err != nil {
		t.Error(err)
	}
	if _, err := parseScheduler([]string{"--no-such-flag"}); err == nil || !strings.Contains(err.Error(), "kube-scheduler: ") {
		t.Errorf("an unknown flag: %v", err)
	}
}
