package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What would not confine is refused before anything is printed; what is near to it is not.
func TestManifestsConfinement(t *testing.T) {
	h := newHost(t, minimal)
	for line, want := range map[string]string{
		"--pool-path /srv --token-secret":       "--token-secret: a token in a Secret is bound to no node, and the policies would refuse it everything",
		"--pool-path /srv/":                     `--pool-path: "/srv/" is not the path of a pool, or of a directory with pools and /*`,
		"--pool-path /srv/*":                    "",
		"--pool-path /*":                        `--pool-path: "/*" is not the path of a pool, or of a directory with pools and /*`,
		"--pool-path /srv/*/a":                  `--pool-path: "/srv/*/a" is not the path of a pool, or of a directory with pools and /*`,
		"--pool-path /srv --class fast-*":       "",
		"--pool-path /srv --class *":            "",
		"--pool-path /srv --class Fast":         `--class: "Fast" cannot be the name of a StorageClass, or begin one`,
		"--pool-path /srv --class=":             `--class: "" cannot be the name of a StorageClass, or begin one`,
		"--pool-path /srv --alias *":            "",
		"--pool-path /srv --audience https://x": "",
		"--pool-path /srv --audience=":          `--audience: "" is none`,
		"--pool-path /srv --audience=a\tb":      `--audience: "a\tb" is none`,
		"--pool-path /srv --hostname a=b_c":     "",
		"--pool-path /srv --hostname a=":        `--hostname: "a" cannot be a node, or "" its label`,
		"--pool-path /srv --hostname A=b":       `--hostname: "A" cannot be a node, or "b" its label`,
		"--class-prefix A --no-classes":         "",
		"--class-prefix A":                      `--class-prefix: "A" cannot begin the name of a StorageClass`,
	} {
		got := h.raw(append([]string{"manifests"}, strings.Split(line, " ")...)...)
		refused := "--\nhostpath-provisioner: " + want + "\nhint: run: hostpath-provisioner manifests --help\nexit 2\n"
		if want != "" && got != refused || want == "" && !strings.HasSuffix(got, "\nexit 0\n") {
			t.Errorf("%s: %s", line, got)
		}
	}
}

// What an API server of the version lacks is left out, and said, where daemons can do without. What
// confines them is refused instead, as is what is no version.
func TestManifestsForAVersion(t *testing.T) {
	h := newHost(t, minimal)
	const without = "--\nhostpath-provisioner: warning: --claim-index is left out: " +
		"Kubernetes %s has no MutatingAdmissionPolicy\nexit 0\n"
	plain, index := h.raw("manifests"), h.raw("manifests", "--claim-index")
	confined := h.raw("manifests", "--pool-path", "/srv")
	plain = strings.TrimSuffix(plain, "exit 0\n")
	for version, want := range map[string]string{
		"1.29 --claim-index":        plain + fmt.Sprintf(without, "1.29"),
		"v1.35.4 --claim-index":     plain + fmt.Sprintf(without, "v1.35.4"),
		"1.35.4+k3s1 --claim-index": plain + fmt.Sprintf(without, "1.35.4+k3s1"),
		"1.36 --claim-index":        index,
		"v1.36.0 --claim-index":     index,
		"1.137 --claim-index":       index,
		"1.30 --pool-path /srv":     confined,
		"1.29":                      plain + "exit 0\n",
		"1.29 --pool-path /srv":     "1.29 has no policies that could confine",
		"1":                         `"1" is no version of Kubernetes`,
		"1.x":                       `"1.x" is no version of Kubernetes`,
		"2.33":                      `"2.33" is no version of Kubernetes`,
		"1.9999999999999999999":     `"1.9999999999999999999" is no version of Kubernetes`,
	} {
		if !strings.Contains(want, "\n") {
			want = "--\nhostpath-provisioner: --kubernetes-version: " + want +
				"\nhint: run: hostpath-provisioner manifests --help\nexit 2\n"
		}
		args := append([]string{"manifests", "--kubernetes-version"}, strings.Fields(version)...)
		if got := h.raw(args...); got != want {
			t.Errorf("%s: %s", version, got)
		}
	}
}

// Each other flag is refused beside --helm-chart, and leaves no directory: an administrator would
// take the chart for one with it.
func TestChartTakesNoOtherFlag(t *testing.T) {
	h := newHost(t, minimal)
	flags := (&program{}).manifestsCommand().Flags()
	all := regexp.MustCompile(`(?m)^ +--(\S+)`).FindAllStringSubmatch(flags.FlagUsages(), -1)
	if len(all) < 10 {
		t.Errorf("%d flags", len(all))
	}
	for _, found := range all {
		flag := flags.Lookup(found[1])
		if flag.Name == "helm-chart" {
			continue
		}
		value := "x=y"
		if flag.Value.Type() == "bool" {
			value = "true"
		}
		got := h.raw("manifests", "--helm-chart", h.path("chart"), "--"+flag.Name+"="+value)
		if _, err := os.Stat(h.path("chart")); !os.IsNotExist(err) || !strings.Contains(got, "--helm-chart: the other options are values") || !strings.HasSuffix(got, "exit 2\n") {
			t.Errorf("--%s: %v, %s", flag.Name, err, got)
		}
		h.must(os.RemoveAll(h.path("chart")))
	}
}

// A directory that cannot be written is told with its path, and a refused option leaves none.
func TestChartDirectory(t *testing.T) {
	h := newHost(t, minimal)
	h.write("file", "x")
	for _, flag := range []string{"--helm-chart", "--kustomization"} {
		if got := h.raw("manifests", flag, h.path("file")); !strings.Contains(got, h.path("file")+": not a directory") || !strings.HasSuffix(got, "exit 1\n") {
			t.Errorf("%s of a file: %s", flag, got)
		}
		if got := h.raw("manifests", flag, h.path("file", "below")); !strings.Contains(got, "not a directory") || !strings.HasSuffix(got, "exit 1\n") {
			t.Errorf("%s below a file: %s", flag, got)
		}
		if got := h.raw("manifests", flag, h.path("new", flag)); got != "exit 0\n" {
			t.Errorf("%s below a directory that is not there: %s", flag, got)
		}
	}
	h.raw("manifests", "--kustomization", h.path("refused"), "--pool-path", "/")
	if all, err := filepath.Glob(h.path("refused*")); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
}
