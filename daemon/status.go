package daemon

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/presence"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/confine"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// StatusFile is the name, in the runtime directory, of the file that a running daemon keeps its
// Status in.
const StatusFile = "status.json"

// TokenFile is the name, in the state directory, of the token that the daemon renewed.
const TokenFile = "token"

// SchemaVersion is that of all JSON that the program prints or writes for other programs. Fields
// are added under the same number; it grows when one is renamed, removed or changes its meaning.
const SchemaVersion = 1

// Status is what a running daemon says of itself, for the status command and for people.
type Status struct {
	Schema      int       `json:"schema"` // SchemaVersion
	Time        time.Time `json:"time"`   // when it was written
	PID         int       `json:"pid"`
	Version     string    `json:"version"`
	Node        string    `json:"node"`
	Provisioner string    `json:"provisioner"`
	// Ready: every pool was checked, the API was read, and work has begun.
	Ready bool `json:"ready"`
	// API is what is wrong with the connection, "" if nothing is.
	API string `json:"api"`
	// Stalled is what makes no progress, "" if everything does.
	Stalled string `json:"stalled,omitempty"`
	// NodeUnknown: the API was read, and it has no Node object of this name.
	NodeUnknown bool `json:"nodeUnknown,omitempty"`
	// OldConfig: the configuration on disk is not the one in force. Config says why.
	OldConfig bool         `json:"previousConfiguration,omitempty"`
	Config    string       `json:"configuration,omitempty"`
	Sentence  string       `json:"sentence"` // the same as systemd's STATUS
	Pools     []PoolStatus `json:"pools"`
	// Work are the purges and copies under way.
	Work []Work `json:"work,omitempty"`
	// Left are pools that are not configured any more, and how many volume objects of this node are
	// in each: nothing removes them.
	Left map[string]int `json:"unconfiguredPools,omitempty"`
	// RefusedRequests is of how many things the API server refuses requests again and again,
	// Refused the first of them.
	RefusedRequests int              `json:"refusedRequests,omitempty"`
	Refused         []report.Refusal `json:"refused,omitempty"`
	// CredentialExpires is when the credential for the API server ends; nil: that is not known.
	CredentialExpires *time.Time `json:"credentialExpires,omitempty"`
	CredentialRefused bool       `json:"credentialRefused,omitempty"` // the API server does not accept it, whatever it says
	// Confined is what the process may still reach; nil: everything that its user may.
	Confined *confine.Confined `json:"confined,omitempty"`
}

// PoolStatus is one pool's part of Status. Sizes are in bytes.
type PoolStatus struct {
	Name  string    `json:"name"`
	Path  string    `json:"path"`
	Open  bool      `json:"open"`
	Since time.Time `json:"since"`
	// Reason and Message say why it is closed, or full.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Warnings are in words; Findings are all that was found, with their reasons, as check has them.
	Warnings []string            `json:"warnings,omitempty"`
	Findings []hostcheck.Finding `json:"findings,omitempty"`
	// Full: it is not open, and only because it is full.
	Full bool   `json:"full,omitempty"`
	Size uint64 `json:"size,omitempty"` // absent while the storage is
	// Reserve is what the pool keeps free of it, Marker the ID in the filesystem's marker.
	Reserve uint64 `json:"reserve,omitempty"`
	Marker  string `json:"marker,omitempty"`
	// Free is what one more volume may take; absent as well, and until what is promised was counted.
	Free *uint64 `json:"free,omitempty"`
	// Used is what its volumes take (Used); absent where that is not known. Where it is by their
	// directories, UsedMeasured is when the first of these was read, and UsedEstimate is true if
	// not all were read to their end.
	Used         *uint64    `json:"used,omitempty"`
	UsedMeasured *time.Time `json:"usedMeasured,omitempty"`
	UsedEstimate bool       `json:"usedEstimate,omitempty"`
	// Promised is to this pool's volumes, whether or not they use it; absent until it was counted.
	Promised *uint64 `json:"promised,omitempty"`
	// Device is major:minor of its filesystem. Pools with the same share what is free.
	Device     string `json:"device,omitempty"`
	MountPoint string `json:"mountPoint,omitempty"` // as configured
	// States is how many volumes are in each state of the volumes command, of those that the records
	// tell and those that this node's objects tell; absent before the records were read.
	States  map[string]int `json:"states,omitempty"`
	Volumes int            `json:"volumes"` // volume objects of this node in this pool
	Scope   string         `json:"scope"`
	// Worker is, of scope shared, the node whose daemon works in it, "" is none.
	Worker string `json:"worker,omitempty"`
}

// refusedMost is how many of the refused requests the status has.
const refusedMost = 10

// Refuses returns the first of the refused requests that something waits for, nil if there is none.
func (s Status) Refuses() *report.Refusal {
	if len(s.Refused) == 0 || s.Refused[0].Optional {
		return nil
	}
	return &s.Refused[0]
}

// ReadStatus reads the status that a daemon left in its runtime directory. The error is
// fs.ErrNotExist where none runs.
func ReadStatus(runtimeDir string) (Status, error) {
	var s Status
	data, err := state.ReadFile(runtimeDir, StatusFile)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("%s: %w", filepath.Join(runtimeDir, StatusFile), err)
	}
	s.printable()
	return s, nil
}

// printable keeps what another user wrote from commanding the terminal, or from looking like other
// lines.
func (s *Status) printable() {
	words := []*string{&s.Version, &s.Node, &s.Provisioner, &s.API, &s.Stalled, &s.Config, &s.Sentence}
	for i := range s.Pools {
		p := &s.Pools[i]
		words = append(words, &p.Name, &p.Path, &p.Reason, &p.Message, &p.Scope, &p.Device,
			&p.MountPoint, &p.Worker, &p.Marker)
		for j := range p.Warnings {
			words = append(words, &p.Warnings[j])
		}
		for j := range p.Findings {
			words = append(words, &p.Findings[j].Reason, &p.Findings[j].Message)
		}
	}
	for i := range s.Work {
		w := &s.Work[i]
		words = append(words, &w.Kind, &w.Pool, &w.Volume, &w.Sentence)
	}
	for i := range s.Refused {
		words = append(words, &s.Refused[i].What, &s.Refused[i].Message)
	}
	for _, word := range words {
		*word = state.Printable(*word)
	}
}

// write replaces the status file as a whole, so that a reader never sees half of one. It is not
// fsynced: the runtime directory does not outlive the machine.
func (s Status) write(runtimeDir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	// Other users may run the status command, whatever the unit's UMask=.
	return state.WriteFile(runtimeDir, StatusFile, append(data, '\n'), 0o644)
}

// poolStatus is what the gate says of a configured pool.
func poolStatus(s gate.State, pool config.Pool) PoolStatus {
	p := PoolStatus{
		Name: pool.Name, Path: pool.Path, Scope: pool.Scope, Open: s.Open(), Since: s.Since,
		Size: s.Report.Size, Device: s.Report.Device, MountPoint: pool.MountPoint,
		Reserve: s.Report.Reserve, Marker: s.Report.Marker,
	}
	if p.Size > 0 {
		p.Free = &s.Report.Free
	}
	p.Reason, p.Message = s.Closed()
	p.Full = !p.Open && s.Removable()
	p.Findings = s.Report.Findings
	for _, f := range s.Report.Findings {
		if f.Reason != p.Reason {
			p.Warnings = append(p.Warnings, f.Message)
		}
	}
	return p
}

// promise adds what the pool has promised. Before that was counted it is not known what new volumes
// may take. Of a shared pool the node that works in it counts.
func (p *PoolStatus) promise(room capacity.Room, own uint64, counted bool) {
	if !counted {
		if p.Scope != plan.ScopeShared {
			p.Free = nil
		}
		return
	}
	p.Promised = &own
	if p.Free != nil {
		p.Free = &room.Free
	}
}

// sentence says the state in words for systemctl status: what is wrong first.
func sentence(s Status) string {
	var parts []string
	if ends := s.CredentialExpires; ends != nil && ends.Before(s.Time) {
		parts = append(parts, fmt.Sprintf(
			"this node's credential ended at %s: make another with hostpath-provisioner enroll",
			ends.UTC().Format(time.RFC3339)))
	}
	if s.API != "" {
		parts = append(parts, "waiting for the API: "+s.API)
	}
	if s.API == "" && !s.Ready {
		parts = append(parts, "reading the API")
	}
	if s.Stalled != "" {
		parts = append(parts, s.Stalled)
	}
	if waits := s.Refuses(); waits != nil {
		parts = append(parts, fmt.Sprintf("the API server refuses %s: %s: %s",
			words.Count(s.RefusedRequests, "request"), waits.What, waits.Message))
	}
	if s.NodeUnknown {
		parts = append(parts, fmt.Sprintf("the cluster has no node %q, claims wait for it", s.Node))
	}
	for _, pool := range slices.Sorted(maps.Keys(s.Left)) {
		parts = append(parts, fmt.Sprintf("pool %s is not configured and has %s",
			words.Name(pool), words.Count(s.Left[pool], "volume")))
	}
	open, volumes, room := 0, 0, ", "+words.Size(s.free())+" for new ones"
	for _, p := range s.Pools {
		volumes += p.Volumes
		if trouble := p.Trouble(); trouble != "" {
			parts = append(parts, "pool "+p.Name+": "+trouble)
		}
		if p.Open {
			open++
			if p.Free == nil {
				room = ""
			}
			continue
		}
		parts = append(parts, fmt.Sprintf("pool %s is %s: %s", p.Name, p.State(), p.Message))
	}
	if s.Ready { // before that the API was not read
		room = ", " + words.Count(volumes, "volume") + room
	}
	parts = append(parts, fmt.Sprintf("%d of %s open on node %s%s",
		open, words.Count(len(s.Pools), "pool"), s.Node, room))
	return strings.Join(parts, "; ")
}

// State is the pool's in one word: presence.PoolOpen and its like.
func (p PoolStatus) State() string {
	switch {
	case p.Open:
		return presence.PoolOpen
	case p.Reason == plan.ReasonCordoned:
		return presence.PoolCordoned
	case p.Full:
		return presence.PoolFull
	}
	return presence.PoolClosed
}

// Trouble says of how many volumes the data is lost, or not known, "" for none.
func (p PoolStatus) Trouble() string {
	var parts []string
	if n := p.States["missing"]; n > 0 {
		parts = append(parts, "the data of "+words.Count(n, "volume")+" is missing")
	}
	if n := p.States["damaged"]; n > 0 {
		parts = append(parts, words.Count(n, "record")+" cannot be read")
	}
	return strings.Join(parts, ", ")
}

// free is what new volumes may take in all open pools: that of a filesystem once, however many
// pools are on it.
func (s Status) free() (sum uint64) {
	most := map[string]uint64{}
	for i, p := range s.Pools {
		if !p.Open || p.Free == nil {
			continue
		}
		filesystem := p.Device
		if filesystem == "" {
			filesystem = fmt.Sprint("of pool ", i)
		}
		before := most[filesystem]
		most[filesystem] = max(before, *p.Free)
		sum += most[filesystem] - before
	}
	return sum
}
