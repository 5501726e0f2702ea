package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/systemd"
)

const markdown = "# Troubleshooting\n\nNot of a reason.\n\n## Pools\n\n### PoolClosed\n\nThe *pool* is\n[closed](a.md): `check`\nsays why.\n\n" +
	"```sh\n-- run `this`\n```\n\n### PoolMissing\n\nThe [pool\nis](b.md) **gone**.\n\n## Claims\n\nNot of a reason, either.\n"

// Commands are indented, so that none begins as an entry does; their backquotes are the shell's.
const wantEntries = `-- CLOSED
Subject: hostpath-provisioner: PoolClosed
Defined-By: hostpath-provisioner
Documentation: man:hostpath-provisioner(8)
Documentation: file:/usr/share/doc/hostpath-provisioner/docs/troubleshooting.md

The pool is
closed: check
says why.

    -- run ` + "`this`" + `

-- MISSING
Subject: hostpath-provisioner: PoolMissing
Defined-By: hostpath-provisioner
Documentation: man:hostpath-provisioner(8)
Documentation: file:/usr/share/doc/hostpath-provisioner/docs/troubleshooting.md

The pool
is gone.

`

func TestEntries(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte(markdown), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, complaints bytes.Buffer
	code := run([]string{file}, &out, &complaints)
	got := out.String()
	for reason, sign := range map[string]string{"PoolClosed": "CLOSED", "PoolMissing": "MISSING"} {
		got = strings.ReplaceAll(got, systemd.MessageID(reason), sign)
	}
	if got != wantEntries || code != 0 || complaints.Len() > 0 {
		t.Errorf("exit %d, %q\n%s\nwant\n%s", code, complaints.String(), got, wantEntries)
	}
}

func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no page":             {nil, 2, "usage: catalog TROUBLESHOOTING.MD\n"},
		"two pages":           {[]string{"a", "b"}, 2, "usage: catalog TROUBLESHOOTING.MD\n"},
		"a page that is gone": {[]string{"/no/such.md"}, 1, "catalog: open /no/such.md: no such file or directory\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, complaints bytes.Buffer
			if code := run(test.args, &out, &complaints); code != test.code || complaints.String() != test.want || out.Len() > 0 {
				t.Errorf("exit %d, %q, want %d, %q", code, complaints.String(), test.code, test.want)
			}
		})
	}
}
