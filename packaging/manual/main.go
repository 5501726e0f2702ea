// Command manual prints the man pages: hostpath-provisioner.8 from the program's own help and the
// text in page8.txt, hostpath-provisioner.toml.5 from docs/configuration.md. So a command, a flag
// or a key is explained in one place.
//
// It explains nothing itself, and takes only what those texts use of Markdown.
package main

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

//go:embed page8.txt
var page8 string

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) != 4 {
		fmt.Fprintln(stderr, "usage: manual 8|5 PROGRAM|CONFIGURATION.MD DATE VERSION")
		return 2
	}
	write := map[string]func(w io.Writer, from, date, version string) error{"8": writeProgram, "5": writeConfiguration}[args[0]]
	if write == nil {
		fmt.Fprintln(stderr, "manual: there is no section", args[0])
		return 2
	}
	if err := write(stdout, args[1], args[2], args[3]); err != nil {
		fmt.Fprintln(stderr, "manual:", err)
		return 1
	}
	return 0
}

func title(w io.Writer, name, section, date, version string) {
	fmt.Fprintf(w, ".TH %s %s \"%s\" \"hostpath-provisioner %s\"\n.nh\n.ad l\n", strings.ToUpper(name), section, date, version)
}

// writeProgram is page8.txt, with the commands in the place of @COMMANDS@ and the flags that all
// have in that of @FLAGS@.
func writeProgram(w io.Writer, program, date, version string) error {
	help, err := helpOf(program)
	if err != nil {
		return err
	}
	title(w, "hostpath-provisioner", "8", date, version)
	var commands strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z-]+) +(.*)$`).FindAllStringSubmatch(section(help, "Available Commands:"), -1) {
		if m[1] == "help" {
			continue
		}
		if err := command(&commands, program, m[1], m[2]); err != nil {
			return err
		}
	}
	text := strings.NewReplacer("@COMMANDS@\n", commands.String(), "@FLAGS@\n", flags(section(help, "Flags:"))).Replace(page8)
	_, err = io.WriteString(w, text)
	return err
}

func command(w io.Writer, program, name, short string) error {
	help, err := helpOf(program, name)
	if err != nil {
		return err
	}
	use := name
	if m := regexp.MustCompile(`(?m)^  hostpath-provisioner (.*)$`).FindStringSubmatch(section(help, "Usage:")); m != nil {
		use = strings.TrimSuffix(m[1], " [flags]")
	}
	// The help begins with what the command does, at length where there is more to say than its one
	// line.
	about, _, _ := strings.Cut(help, "\n\nUsage:")
	if about == short {
		about += "."
	}
	fmt.Fprintf(w, ".TP\n\\fB%s\\fR\n%s\n", roff(use), roff(strings.TrimSpace(about)))
	if own := flags(section(help, "\nFlags:")); own != "" {
		fmt.Fprintf(w, ".RS\n%s.RE\n", own)
	}
	return nil
}

// flags are the lines of a help text as tagged paragraphs.
func flags(text string) string {
	var b strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[a-z-]+(?: [a-z]+)?)  +(.*)$`).FindAllStringSubmatch(text, -1) {
		if m[1] != "--help" {
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(m[1]), roff(m[2]))
		}
	}
	return b.String()
}

func helpOf(program string, args ...string) (string, error) {
	command := exec.Command(program, append(args, "--help")...)
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

func writeConfiguration(w io.Writer, file, date, version string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	title(w, fileName, "5", date, version)
	fmt.Fprintf(w, ".SH NAME\n%s \\- which directories of this host become Kubernetes volumes\n", roff(fileName))
	fmt.Fprintf(w, ".SH SYNOPSIS\n%s\n.br\n%s\n", roff("/etc/hostpath-provisioner/config.toml"), roff("/etc/hostpath-provisioner/conf.d/*.toml"))
	for _, part := range strings.Split(string(text), "\n## ")[1:] {
		heading, body, _ := strings.Cut(part, "\n")
		if heading == "StorageClass" || heading == "Flags and directories" {
			continue // of the cluster; in the other page
		}
		fmt.Fprintf(w, ".SH %s\n", roff(strings.ToUpper(heading)))
		writeBody(w, body)
	}
	fmt.Fprintf(w, ".SH SEE ALSO\n.BR hostpath\\-provisioner (8)\n")
	return nil
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
