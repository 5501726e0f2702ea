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
	if got := pages(t, program(t, helps), file)["hostpath-provisioner.toml.5"]; got != configurationPage {
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

const helps = `case "$*" in
--help) printf 'Volumes.\n\nUsage:\n  hostpath-provisioner [flags]\n\nAvailable Commands:\n  check       Look at pools\n  help        Help about any command\n  pool        Close a pool\n\nFlags:\n      --config file   the file\n  -h, --help          help\n\nUse it.\n';;
"check --help") printf 'Look at pools\n\nUsage:\n  hostpath-provisioner check [POOL...] [flags]\n\nFlags:\n  -h, --help   help\n      --json   for programs\n\nGlobal Flags:\n      --config file   the file\n';;
"pool --help") printf 'Close a pool, and more.\n.Twice is fine.\n\nAnd again.\n\nUsage:\n  hostpath-provisioner pool [command]\n\nExamples:\n  hostpath-provisioner pool shut x\n\nAvailable Commands:\n  shut   Shut it\n\nGlobal Flags:\n      --config file   the file\n';;
"pool shut --help") printf 'Shut it\n\nUsage:\n  hostpath-provisioner pool shut\n\nFlags:\n      --now   at once\n';;
esac`

// A command is explained by its own words, or by its line in the list; flags of all commands are
// listed once, those of a second word with its command.
func TestProgramInRoff(t *testing.T) {
	all := pages(t, program(t, helps), "../../docs/configuration.md")
	for name, wants := range map[string][]string{
		"hostpath-provisioner.8": {
			".TP\n.BR hostpath\\-provisioner\\-check (8)\nLook at pools.\n.TP\n.BR hostpath\\-provisioner\\-pool (8)\nClose a pool.\n.SH",
			".SH FLAGS\nAll commands take these:\n.TP\n\\fB\\-\\-config file\\fR\nthe file\n.SH UNITS\n",
		},
		"hostpath-provisioner-check.8": {
			".SH NAME\nhostpath\\-provisioner\\-check \\- look at pools\n.SH SYNOPSIS\n.B hostpath\\-provisioner check [POOL...] [flags]\n.SH DESCRIPTION\nLook at pools.\n.SH OPTIONS\n.TP\n\\fB\\-\\-json\\fR\nfor programs\n.SH SEE ALSO\n",
		},
		"hostpath-provisioner-pool.8": {
			"Close a pool, and more.\n\\&.Twice is fine.\n.PP\nAnd again.\n.TP\n\\fBpool shut\\fR\nShut it.\n.SH OPTIONS\n.TP\n\\fB\\-\\-now\\fR\nat once\n",
			".SH EXAMPLES\n.nf\n  hostpath\\-provisioner pool shut x\n.fi\n",
		},
	} {
		for _, want := range wants {
			if !strings.Contains(all[name], want) {
				t.Errorf("not in %s:\n%s\nthe page:\n%s", name, want, all[name])
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	broken := program(t, `[ "$1" = --help ] && printf 'Available Commands:\n  check   Look\n' || exit 3`)
	dir := t.TempDir()
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no arguments":               {nil, 2, "usage: manual PROGRAM CONFIGURATION.MD DATE VERSION DIRECTORY\n"},
		"no configuration.md":        {[]string{program(t, helps), "/no/such.md", "", "", dir}, 1, "manual: open /no/such.md: no such file or directory\n"},
		"no program":                 {[]string{"/no/such", "x", "", "", dir}, 1, "manual: /no/such --help: fork/exec /no/such: no such file or directory\n"},
		"no directory":               {[]string{program(t, helps), "x", "", "", "/no/such"}, 1, "manual: open /no/such/hostpath-provisioner-check.8: no such file or directory\n"},
		"a command has not any help": {[]string{broken, "x", "", "", dir}, 1, "manual: " + broken + " check --help: exit status 3\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			if code := run(test.args, &stderr); code != test.code || stderr.String() != test.want {
				t.Errorf("exit %d, %q, want %d, %q", code, stderr.String(), test.code, test.want)
			}
		})
	}
}
