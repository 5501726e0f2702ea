package main

import (
	"bytes"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// What an adoption tells: a row for each volume, its notes, the counts, and a hint for each reason
// of a refusal, once. A path from the API does not command the terminal.
func TestAdoptTells(t *testing.T) {
	adopted := adopt.Row{Volume: "pv-1", Claim: "shop/data", Path: "/srv/a\x1b[2J", Provisioner: "example.com/x", Action: adoptrules.Adopt, Done: true, Notes: []string{"its mode stays"}}
	refused := adopt.Row{Volume: "pv-2", Claim: "shop/logs", Path: "/srv/b", Provisioner: "example.com/x", Action: plan.Refuse, Reason: adoptrules.ReasonUsed, Message: "pod shop/web uses it"}
	also := refused
	also.Volume = "pv-3"
	planned := adopted
	planned.Done, planned.Notes = false, nil
	ours := adopt.Row{Volume: "pv-4", Claim: "shop/x", Path: "/srv/c", Provisioner: "example.com/x", Action: adoptrules.Ours}
	undone := adopted
	undone.Action, undone.Notes = adoptrules.Undo, nil
	for _, c := range []struct {
		name        string
		rows        []adopt.Row
		a           adoption
		out, errors string
	}{
		{"none", nil, adoption{}, "0 adopted, 0 refused\n", ""},
		{"adopted and refused twice", []adopt.Row{adopted, refused, also}, adoption{},
			"VOLUME  CLAIM      PATH             SYSTEM         STATUS\n" +
				"pv-1    shop/data  \"/srv/a\\x1b[2J\"  example.com/x  adopted\n" +
				"pv-2    shop/logs  /srv/b           example.com/x  refused: pod shop/web uses it\n" +
				"pv-3    shop/logs  /srv/b           example.com/x  refused: pod shop/web uses it\n" +
				"\nnote: pv-1: its mode stays\n1 adopted, 2 refused\n",
			"hint: stop these pods, then run this again\n"},
		{"tried, with one of ours", []adopt.Row{planned, ours}, adoption{dryRun: true},
			"VOLUME  CLAIM      PATH             SYSTEM         STATUS\n" +
				"pv-1    shop/data  \"/srv/a\\x1b[2J\"  example.com/x  adopt\n" +
				"pv-4    shop/x     /srv/c           example.com/x  ours\n" +
				"\n1 would be adopted, 1 ours already, 0 refused\n", ""},
		{"undone", []adopt.Row{undone}, adoption{undo: true},
			"VOLUME  CLAIM      PATH             SYSTEM         STATUS\n" +
				"pv-1    shop/data  \"/srv/a\\x1b[2J\"  example.com/x  undone\n" +
				"\n1 undone, 0 refused\n", ""},
		{"none, as JSON", nil, adoption{asJSON: true}, "{\n  \"volumes\": []\n}\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if err := (&program{stdout: &out, stderr: &errs}).tellAdopted(c.rows, c.a); err != nil {
				t.Fatal(err)
			}
			if out.String() != c.out || errs.String() != c.errors {
				t.Errorf("got\n%s%s\nwant\n%s%s", &out, &errs, c.out, c.errors)
			}
		})
	}
}
