package config

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v2"
)

// WebFiles are the web configuration file of the metrics and those that it names, as far as it can
// be read: the library that serves by it does not tell them.
func (c Config) WebFiles() []string {
	if c.MetricsWebConfig == "" {
		return nil
	}
	f, _ := readWeb(c.MetricsWebConfig)
	t := f.TLSConfig
	files := []string{c.MetricsWebConfig, t.TLSCertPath, t.TLSKeyPath, t.ClientCAs}
	return slices.DeleteFunc(files, func(name string) bool { return name == "" })
}

// readWeb returns with an error what stands before the mistake.
func readWeb(path string) (f web.Config, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, &f)
	}
	f.TLSConfig.SetDirectory(filepath.Dir(path))
	return f, err
}

// checkMetrics warns where others can read the metrics, which name namespaces' claims, or the
// secrets of their server.
func (l *loader) checkMetrics() {
	const key = "metrics_web_config"
	var f web.Config
	var err error
	file := l.config.MetricsWebConfig
	if file != "" {
		f, err = readWeb(file)
	}
	// By a file that cannot be used nothing is served.
	if risk := webRisk(l.config.Metrics, f); risk != "" && err == nil {
		l.warn(l.whole("metrics"), "%s", risk)
	}
	if file == "" {
		return
	}
	for _, exposed := range webExposed(file, f) {
		l.warn(l.whole(key), "%s", exposed)
	}
	if err := web.Validate(file); err != nil {
		text := strings.Join(strings.Fields(err.Error()), " ")
		if !strings.Contains(text, file) {
			text = file + ": " + text
		}
		at := l.whole(key)
		l.config.WebError = Errors{{File: at.file, Line: at.line, Key: key, Text: text}}
	}
}

// webRisk is what is dangerous about metrics at this address (host:port, "" for none), "" for
// nothing.
func webRisk(address string, f web.Config) string {
	certificates := f.TLSConfig.ClientAuth == "RequireAndVerifyClientCert"
	switch {
	case !others(address):
		return ""
	case len(f.Users) == 0 && !certificates:
		return fmt.Sprintf("%q is reachable from other machines, without a password or a certificate", address)
	case !f.TLSConfig.IsEnabled():
		return fmt.Sprintf("%q is reachable from other machines, whose passwords are sent without TLS", address)
	}
	return ""
}

// webExposed are the files with secrets that every user of the host can read, one sentence each.
func webExposed(path string, f web.Config) (all []string) {
	secret := []string{f.TLSConfig.TLSKeyPath}
	if len(f.Users) > 0 || f.TLSConfig.TLSKey != "" {
		secret = append(secret, path)
	}
	for _, file := range secret {
		if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o004 != 0 {
			all = append(all, fmt.Sprintf("every user of the host can read %s (mode %04o)", file, info.Mode().Perm()))
		}
	}
	return all
}

// others reports whether other machines can connect to an address.
func others(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "localhost" {
		return false
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback()
}
