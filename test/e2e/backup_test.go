package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pages"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// own is a backup without what other tests of this control plane adopt meanwhile.
func (w *environment) own(backup []byte) []byte {
	w.Helper()
	var list map[string]any
	w.Must(json.Unmarshal(backup, &list))
	all, _ := list["items"].([]any)
	list["items"] = slices.DeleteFunc(all, func(item any) bool {
		text, err := json.Marshal(item)
		return err != nil || !strings.Contains(string(text), `"namespace":"`+w.Namespace+`"`)
	})
	return need(json.Marshal(list))(w)
}

// A cluster lost its volumes and claims, and they are made again from a backup, as the page says:
// all are bound, with their data, and are removed with their claims as before.
func TestBackup(t *testing.T) {
	w, h, class := oneHost(t)
	one, two, released := h.made("one", class), h.made("two", class), h.made("released", class)
	w.Retain(released.Name)
	w.held(released.Name, false)
	w.Releases("released", released.Name)
	commands := need(pages.Open(rig.Root()).Take("operation.md", "Backups", "sh"))(w)
	if len(commands) != 2 || commands[0].Text != "hostpath-provisioner backup > volumes.json\n" {
		t.Fatalf("the page has %q", commands)
	}
	text, code := h.Call("backup")
	file := filepath.Join(hosttest.Dir(w), "volumes.json")
	if code != 0 {
		t.Fatal(text)
	}
	w.Must(os.WriteFile(file, w.own([]byte(text)), 0o600))
	h.Kill()
	for _, pv := range []string{one.Name, two.Name} {
		w.ForceOff(pv)
	}
	w.RemovesVolume(released.Name)
	w.DeleteClaim("one", "two")
	for _, claim := range []string{"one", "two"} {
		w.Must(w.WaitClaimGone(w.Soon(), w.Namespace, claim))
	}
	w.kubectl(strings.ReplaceAll(commands[1].Text, "volumes.json", file))
	for _, claim := range []string{"one", "two"} {
		if pv := w.Bound(claim); pv.Name != one.Name && pv.Name != two.Name {
			t.Errorf("%s has the volume %s", claim, pv.Name)
		}
	}
	w.Phase(released.Name, "Released")
	h.run()
	h.wantData(cluster.PathOf(one), "one")
	w.Removes("two", two.Name)
	h.wantTree(pool.Of(one.Name, released.Name)...)
}
