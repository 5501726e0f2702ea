// Package prometheus starts the distribution's Prometheus for tests, and asks it what the dashboard
// asks.
//
// It will not build one: packaging/prometheus/fetch.sh puts it into .build.
package prometheus

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// Server is a running Prometheus.
type Server struct {
	child *process.Child
	dir   string
	url   string
	every time.Duration
}

// Start starts one that scrapes these addresses so often, which is also how long one may take, and
// keeps what it has in the directory. Stop ends it. It takes queries once Ready.
func Start(dir string, every time.Duration, targets ...string) (*Server, error) {
	address, err := rig.FreeAddress()
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, url: "http://" + address, every: every}
	if err := s.configure(targets); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	program := filepath.Join(rig.Root(), ".build", "prometheus")
	cmd := exec.Command(program, "--config.file="+s.config(), "--log.level=warn",
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // beside tests that wait for their daemons
	cmd.Stdout, cmd.Stderr = log, log
	if s.child, err = process.Start(cmd); err != nil {
		return nil, fmt.Errorf("no prometheus: %w; run: make .build/prometheus", err)
	}
	return s, nil
}

func (s *Server) config() string { return filepath.Join(s.dir, "prometheus.yml") }

// configure writes what prometheus-operator makes of the Helm chart's ScrapeConfig: the label of
// the targets is the job's name.
func (s *Server) configure(targets []string) error {
	list, err := json.Marshal(append([]string{}, targets...)) // not null
	if err != nil {
		return err
	}
	return os.WriteFile(s.config(), fmt.Appendf(nil, `
global: {scrape_interval: %dms}
scrape_configs:
  - job_name: scrapeConfig/storage/hostpath-provisioner
    static_configs: [{targets: %s, labels: {job: hostpath-provisioner}}]
`, s.every.Milliseconds(), list), 0o600)
}

// Retarget has it scrape these addresses and no others.
func (s *Server) Retarget(targets ...string) error {
	if err := s.configure(targets); err != nil {
		return err
	}
	return s.child.Signal(syscall.SIGHUP)
}

// Ready reports whether it takes queries. It is an error that it has ended.
func (s *Server) Ready() (bool, error) {
	if !s.child.Running() {
		return false, fmt.Errorf("prometheus has ended:\n%s", s.Log())
	}
	response, err := http.Get(s.url + "/-/ready")
	if err != nil {
		return false, nil
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK, nil
}

// Log is what it has printed.
func (s *Server) Log() string {
	said, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return string(said)
}

// Stop kills it.
func (s *Server) Stop() { _ = s.child.Kill() }

// get reads what the API has at a path.
func (s *Server) get(path string, parameters url.Values, into any) error {
	response, err := http.Get(s.url + path + "?" + parameters.Encode())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var whole struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(response.Body).Decode(&whole); err != nil {
		return err
	}
	if whole.Status != "success" {
		return fmt.Errorf("%s: %s", parameters, whole.Error)
	}
	return json.Unmarshal(whole.Data, into)
}

// Query returns the numbers of an instant query; NaN is none.
func (s *Server) Query(expression string) (numbers []float64, err error) {
	var got struct{ Result []struct{ Value [2]any } }
	err = s.get("/api/v1/query", url.Values{"query": {expression}}, &got)
	for _, series := range got.Result {
		text, _ := series.Value[1].(string)
		number, wrong := strconv.ParseFloat(text, 64)
		if wrong != nil {
			return nil, wrong
		}
		if !math.IsNaN(number) {
			numbers = append(numbers, number)
		}
	}
	return numbers, err
}
