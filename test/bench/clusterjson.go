package main

import (
	"encoding/json"
	"os"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// clusterResults are the medians of the case cluster, as a file has them.
type clusterResults struct {
	Machine string       `json:"machine"`
	Pods    int          `json:"pods"`
	Rows    []clusterRow `json:"rows"`
}

type clusterRow struct {
	Contender        string  `json:"contender"`
	Floor            bool    `json:"floor,omitempty"` // it makes no volumes
	Runs             int     `json:"runs"`
	PodsPerSecond    float64 `json:"podsPerSecond"`
	ClaimsPerSecond  float64 `json:"claimsPerSecond,omitempty"`
	PodP50           float64 `json:"podP50Seconds"`
	PodP99           float64 `json:"podP99Seconds"`
	StatefulSet      float64 `json:"statefulSetSeconds"`
	RemovedPerSecond float64 `json:"removedPerSecond,omitempty"`
	BinderRequests   float64 `json:"binderRequestsPerClaim"`
	Others           float64 `json:"othersUsed"` // share of the machine that other programs used
}

// writeCluster writes the results of the case cluster if a file was asked for. A contender that
// failed is not in it.
func (b *bench) writeCluster() error {
	if b.json == "" {
		return nil
	}
	data, err := json.MarshalIndent(b.clusterResults(harness.Machine()), "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(b.json, append(data, '\n'), 0o644)
}

func (b *bench) clusterResults(machine string) clusterResults {
	all := clusterResults{Machine: machine, Pods: b.pods}
	for _, contender := range b.inCluster() {
		mine := b.samples.of(contender, caseCluster)
		if b.samples.failure(contender) != nil || len(mine) == 0 {
			continue
		}
		all.Rows = append(all.Rows, clusterRow{
			Contender: titles[contender], Floor: contender == nameBound, Runs: len(mine),
			PodsPerSecond: median(mine, rateOf), ClaimsPerSecond: median(mine, boundOf),
			PodP50: median(mine, sample.p50).Seconds(), PodP99: median(mine, sample.p99).Seconds(),
			StatefulSet: median(mine, orderedOf).Seconds(), RemovedPerSecond: median(mine, removedOf),
			BinderRequests: median(mine, binderOf), Others: median(mine, strangers),
		})
	}
	return all
}
