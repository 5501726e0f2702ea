package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// picture is one file that the README shows.
type picture struct {
	file   string // its name, beside the JSON
	json   string
	title  string
	unit   string
	groups func(data []byte) (groups []group, machine string, err error)
}

var pictures = []picture{
	{"pods.svg", "cluster.json", "Pods that get their node, with a new claim each", "pods a second", podGroups},
	{"memory.svg", "scale.json", "Memory of a node's provisioner beside claims and volumes of other nodes", "MiB resident", memoryGroups},
}

// group is bars that stand together.
type group struct {
	name string
	bars []bar
}

type bar struct {
	name  string
	value float64
	ours  bool
}

// draw reads the measurements and returns the SVG.
func (p picture) draw(dir string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(dir, p.json))
	if err != nil {
		return nil, err
	}
	groups, machine, err := p.groups(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.json, err)
	}
	return p.svg(groups, machine), nil
}

// ourName is what a contender's name begins with that is this product.
const ourName = "hostpath-provisioner"

// podGroups reads what make bench writes with -json.
func podGroups(data []byte) ([]group, string, error) {
	var results struct {
		Machine string
		Rows    []struct {
			Contender     string
			PodsPerSecond float64
			Floor         bool
		}
	}
	err := json.Unmarshal(data, &results)
	var one group
	for _, r := range results.Rows {
		if !r.Floor { // what is a hundred times as long hides the others
			one.bars = append(one.bars, bar{r.Contender, r.PodsPerSecond, strings.HasPrefix(r.Contender, ourName)})
		}
	}
	return []group{one}, results.Machine, err
}

// memoryGroups reads what make bench-scale writes with -json.
func memoryGroups(data []byte) ([]group, string, error) {
	var results struct {
		Machine string
		Rows    []struct {
			Foreign     int
			Contender   string
			ResidentMiB float64
		}
	}
	err := json.Unmarshal(data, &results)
	var all []group
	for _, r := range results.Rows {
		name := fmt.Sprintf("%d claims", r.Foreign)
		if len(all) == 0 || all[len(all)-1].name != name {
			all = append(all, group{name: name})
		}
		last := &all[len(all)-1]
		last.bars = append(last.bars, bar{r.Contender, r.ResidentMiB, strings.HasPrefix(r.Contender, ourName)})
	}
	return all, results.Machine, err
}
