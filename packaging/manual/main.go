// Command manual writes the man pages: hostpath-provisioner.8 from the program's own help and the
// text in page8.txt, a page for each command from that command's help, hostpath-provisioner.toml.5
// from docs/configuration.md. So a command, a flag or a key is explained in one place.
//
// It explains nothing itself, and takes only what those texts use of Markdown.
package main

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

//go:embed page8.txt
var page8 string

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

func run(args []string, stderr io.Writer) int {
	if len(args) != 5 {
		fmt.Fprintln(stderr, "usage: manual PROGRAM CONFIGURATION.MD DATE VERSION DIRECTORY")
		return 2
	}
	m := manual{program: args[0], date: args[2], version: args[3], dir: args[4]}
	err := m.writeProgram()
	if err == nil {
		err = m.writeConfiguration(args[1])
	}
	if err != nil {
		fmt.Fprintln(stderr, "manual:", err)
		return 1
	}
	return 0
}

// manual is the pages of one build of the program.
type manual struct{ program, date, version, dir string }

// page writes one page, NAME.SECTION.
func (m manual) page(name, section, text string) error {
	title := fmt.Sprintf(".TH %s %s \"%s\" \"hostpath-provisioner %s\"\n.nh\n.ad l\n",
		strings.ToUpper(name), section, m.date, m.version)
	return os.WriteFile(filepath.Join(m.dir, name+"."+section), []byte(title+text), 0o644)
}

var listed = regexp.MustCompile(`(?m)^  ([a-z-]+) +(.*)$`)

// writeProgram is page8.txt, with the commands in the place of @COMMANDS@ and the flags that all
// have in that of @FLAGS@, and a page for each of the commands.
func (m manual) writeProgram() error {
	help, err := m.help()
	if err != nil {
		return err
	}
	var commands strings.Builder
	for _, c := range listed.FindAllStringSubmatch(section(help, "Available Commands:"), -1) {
		if c[1] == "help" {
			continue
		}
		fmt.Fprintf(&commands, ".TP\n.BR %s (8)\n%s.\n", roff("hostpath-provisioner-"+c[1]), roff(c[2]))
		if err := m.writeCommand(c[1], c[2]); err != nil {
			return err
		}
	}
	return m.page("hostpath-provisioner", "8", strings.NewReplacer(
		"@COMMANDS@\n", commands.String(), "@FLAGS@\n", flags(section(help, "Flags:"))).Replace(page8))
}

// writeCommand is the page of one command, and of what it does with a second word.
func (m manual) writeCommand(name, short string) error {
	help, err := m.help(name)
	if err != nil {
		return err
	}
	var b strings.Builder
	full := "hostpath-provisioner-" + name
	short = strings.ToLower(short[:1]) + short[1:]
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n%s", roff(full), roff(short), synopsis(help))
	about, _, _ := strings.Cut(help, "\n\nUsage:")
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", paragraphs(about))
	own := flags(section(help, "\nFlags:"))
	for _, c := range listed.FindAllStringSubmatch(section(help, "Available Commands:"), -1) {
		more, err := m.help(name, c[1])
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, ".TP\n\\fB%s %s\\fR\n%s.\n", roff(name), roff(c[1]), roff(c[2]))
		own += flags(section(more, "\nFlags:"))
	}
	if own != "" {
		fmt.Fprintf(&b, ".SH OPTIONS\n%s", own)
	}
	if examples := section(help, "\nExamples:\n"); examples != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(examples))
	}
	b.WriteString(".SH SEE ALSO\n.BR hostpath\\-provisioner (8)\nhas the flags of all commands, exit codes and files.\n")
	return m.page(full, "8", b.String())
}

// synopsis is the usage lines of a help text.
func synopsis(help string) string {
	var b strings.Builder
	for line := range strings.Lines(section(help, "Usage:\n")) {
		fmt.Fprintf(&b, ".B %s\n.br\n", roff(strings.TrimSpace(line)))
	}
	return strings.TrimSuffix(b.String(), ".br\n")
}

// paragraphs are those of a help text.
func paragraphs(text string) string {
	text = strings.TrimSpace(text)
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return strings.ReplaceAll(roff(text), "\n\n", "\n.PP\n")
}

// flags are the lines of a help text as tagged paragraphs.
func flags(text string) string {
	var b strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[a-z-]+(?: \S+)?)  +(.*)$`).FindAllStringSubmatch(text, -1) {
		if m[1] != "--help" {
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(m[1]), roff(m[2]))
		}
	}
	return b.String()
}

func (m manual) help(args ...string) (string, error) {
	command := exec.Command(m.program, append(args, "--help")...)
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(command.Args, " "), err)
	}
	return string(out), nil
}

// section is what stands between a heading of a help text and the next empty line.
func section(help, heading string) string {
	_, rest, _ := strings.Cut(help, heading)
	rest, _, _ = strings.Cut(rest, "\n\n")
	return rest
}

const fileName = "hostpath-provisioner.toml"

func (m manual) writeConfiguration(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, ".SH NAME\n%s \\- which directories of this host become Kubernetes volumes\n", roff(fileName))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n%s\n.br\n%s\n",
		roff("/etc/hostpath-provisioner/config.toml"), roff("/etc/hostpath-provisioner/conf.d/*.toml"))
	for _, part := range strings.Split(string(text), "\n## ")[1:] {
		heading, body, _ := strings.Cut(part, "\n")
		if heading == "StorageClass" || heading == "Flags and directories" {
			continue // of the cluster; in the other page
		}
		fmt.Fprintf(&b, ".SH %s\n", roff(strings.ToUpper(heading)))
		writeBody(&b, body)
	}
	fmt.Fprintf(&b, ".SH SEE ALSO\n.BR hostpath\\-provisioner (8)\n")
	return m.page(fileName, "5", b.String())
}

// writeBody takes paragraphs, tables (the first column is a key, the second its default) and fenced
// code.
func writeBody(w io.Writer, text string) {
	code := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			code = !code
			fmt.Fprintln(w, map[bool]string{true: ".PP\n.nf\n.RS", false: ".RE\n.fi"}[code])
		case code:
			fmt.Fprintln(w, roff(line))
		case strings.HasPrefix(line, "| `"):
			row(w, line)
		case strings.HasPrefix(line, "|"): // a table's head
		case strings.HasPrefix(line, "### "):
			fmt.Fprintf(w, ".SS %s\n", inline(line[4:]))
		case line == "":
			fmt.Fprintln(w, ".PP")
		default:
			fmt.Fprintln(w, inline(line))
		}
	}
}

func row(w io.Writer, line string) {
	cells := strings.Split(strings.Trim(line, "| "), " | ")
	fmt.Fprintf(w, ".TP\n%s\n%s\n", inline(cells[0]), inline(cells[len(cells)-1]))
	if len(cells) == 3 {
		fmt.Fprintf(w, "Default: %s.\n", inline(cells[1]))
	}
}

var (
	link = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`)
	span = regexp.MustCompile("`([^`]+)`")
	bold = regexp.MustCompile(`\*\*?([^*]+)\*\*?`)
)

// inline turns a line of Markdown into roff.
func inline(line string) string {
	line = link.ReplaceAllString(line, "$1")
	var b strings.Builder
	for last := 0; ; {
		m := span.FindStringSubmatchIndex(line[last:])
		if m == nil {
			b.WriteString(bold.ReplaceAllString(roff(line[last:]), `\fI$1\fR`))
			return guarded(b.String())
		}
		b.WriteString(bold.ReplaceAllString(roff(line[last:last+m[0]]), `\fI$1\fR`))
		b.WriteString(`\fB` + roff(line[last+m[2]:last+m[3]]) + `\fR`)
		last += m[1]
	}
}

// roff escapes what groff_man(7) would take for its own.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`).Replace(text)
	return guarded(text)
}

var dot = regexp.MustCompile(`(?m)^\.`)

// guarded keeps lines that begin with a dot from being requests.
func guarded(text string) string { return dot.ReplaceAllString(text, `\&.`) }
