package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What Markdown means in one place, roff has another sign for; and what groff_man(7) would take for
// its own is escaped.
func TestInline(t *testing.T) {
	for name, test := range map[string]struct{ markdown, want string }{
		"plain text":                      {"a pool", "a pool"},
		"a hyphen is a minus":             {"every-node", `every\-node`},
		"a backslash":                     {`C:\srv`, `C:\esrv`},
		"an apostrophe":                   {"the daemon's", `the daemon\(aqs`},
		"an apostrophe begins a line":     {"'tis", `\(aqtis`},
		"a dot begins a line":             {".so file", `\&.so file`},
		"code":                            {"set `low-space` now", `set \fBlow\-space\fR now`},
		"code begins a line with a dot":   {"`.toml` files", `\fB\&.toml\fR files`},
		"code twice":                      {"`a` or `b`", `\fBa\fR or \fBb\fR`},
		"a backquote without a second":    {"a ` alone", "a ` alone"},
		"emphasis":                        {"*never* and **always**", `\fInever\fR and \fIalways\fR`},
		"stars in code are no emphasis":   {"`conf.d/*.toml` and `*`", `\fBconf.d/*.toml\fR and \fB*\fR`},
		"a link is its text":              {"see [the guide](install.md#first).", "see the guide."},
		"code in a link":                  {"[`check`](x.md)", `\fBcheck\fR`},
		"brackets alone are not a link":   {"a list [a, b]", "a list [a, b]"},
		"only the line's first dot hurts": {"`a`.b", `\fBa\fR\&.b`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := inline(test.markdown); got != test.want {
				t.Errorf("%s\nwant %s", got, test.want)
			}
		})
	}
}

const configuration = "# Configuration\n\nNot in the page.\n\n## Pools\n\nA `pool`\nis a directory.\n\n" +
	"| key | default | meaning |\n|---|---|---|\n| `path` | none | its path |\n| `mode` | `\"0750\"` | octal |\n\n" +
	"### Example\n\n```toml\n[pool.fast]\n.dot = 1\n```\n\n| key | meaning |\n|---|---|\n| `x` | no default |\n" +
	"\n## StorageClass\n\nOf the cluster.\n\n## Flags and directories\n\nOf the other page.\n"

const configurationPage = `.TH HOSTPATH-PROVISIONER.TOML 5 "2026-05-04" "hostpath-provisioner v1"
.nh
.ad l
.SH NAME
hostpath\-provisioner.toml \- which directories of this host become Kubernetes volumes
.SH SYNOPSIS
/etc/hostpath\-provisioner/config.toml
.br
/etc/hostpath\-provisioner/conf.d/*.toml
.SH POOLS
.PP
A \fBpool\fR
is a directory.
.PP
.TP
\fBpath\fR
its path
Default: none.
.TP
\fBmode\fR
octal
Default: \fB"0750"\fR.
.PP
.SS Example
.PP
.PP
.nf
.RS
[pool.fast]
\&.dot = 1
.RE
.fi
.PP
.TP
\fBx\fR
no default
.SH SEE ALSO
.BR hostpath\-provisioner (8)
`

// The sections about the cluster, and about what is in section 8, are left out.
func TestConfigurationInRoff(t *testing.T) {
	file := filepath.Join(t.TempDir(), "configuration.md")
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := page(t, "5", file); got != configurationPage {
		t.Errorf("%s\nwant\n%s", got, configurationPage)
	}
}

// program is a script in the place of the program: it prints a help as cobra does.
func program(t *testing.T, script string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hostpath-provisioner")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

const helps = `case $1 in
--help) printf 'Volumes.\n\nUsage:\n  hostpath-provisioner [flags]\n\nAvailable Commands:\n  check       Look at pools\n  help        Help about any command\n  prepare     Make a mount point\n\nFlags:\n      --config file   the file\n  -h, --help          help\n\nUse it.\n';;
check) printf 'Look at pools\n\nUsage:\n  hostpath-provisioner check [POOL...] [flags]\n\nFlags:\n  -h, --help   help\n      --json   for programs\n\nGlobal Flags:\n      --config file   the file\n';;
prepare) printf 'Make a mount point, and more.\n.Twice is fine.\n\nUsage:\n  hostpath-provisioner prepare\n\nGlobal Flags:\n      --config file   the file\n';;
esac`

// A command without words of its own is explained by its line in the list; flags of all commands
// are listed once.
func TestProgramInRoff(t *testing.T) {
	text := page(t, "8", program(t, helps))
	for _, want := range []string{
		".TP\n\\fBcheck [POOL...]\\fR\nLook at pools.\n.RS\n.TP\n\\fB\\-\\-json\\fR\nfor programs\n.RE\n.TP\n\\fBprepare\\fR\nMake a mount point, and more.\n\\&.Twice is fine.\n",
		".SH FLAGS\nAll commands take these:\n.TP\n\\fB\\-\\-config file\\fR\nthe file\n.SH UNITS\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("not in the page:\n%s\nthe page:\n%s", want, text)
		}
	}
}

func TestRefusals(t *testing.T) {
	broken := program(t, `[ "$1" = --help ] && printf 'Available Commands:\n  check   Look\n' || exit 3`)
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no arguments":               {nil, 2, "usage: manual 8|5 PROGRAM|CONFIGURATION.MD DATE VERSION\n"},
		"another section":            {[]string{"1", "x", "", ""}, 2, "manual: there is no section 1\n"},
		"no configuration.md":        {[]string{"5", "/no/such.md", "", ""}, 1, "manual: open /no/such.md: no such file or directory\n"},
		"no program":                 {[]string{"8", "/no/such", "", ""}, 1, "manual: /no/such --help: fork/exec /no/such: no such file or directory\n"},
		"a command has not any help": {[]string{"8", broken, "", ""}, 1, "manual: " + broken + " check --help: exit status 3\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(test.args, &stdout, &stderr); code != test.code || stderr.String() != test.want {
				t.Errorf("exit %d, %q, want %d, %q", code, stderr.String(), test.code, test.want)
			}
		})
	}
}
