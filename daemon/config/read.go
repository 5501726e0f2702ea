package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/BurntSushi/toml"
)

// maxFile bounds one configuration file in bytes: no file that is written by hand is larger.
const maxFile = 1 << 20

// setting is one key of one file: its path ("pool", "fast", "path"), value and line. A table that
// is opened by a [header] is a setting with a nil value.
type setting struct {
	path  []string
	value any // string, bool, int64, float64, time.Time, []any; nil for a table
	file  string
	line  int
}

func (s setting) key() string { return toml.Key(s.path).String() }

// readFile returns the settings of one file. A file of which TOML cannot be
// made has one error, because the parser stops there.
func readFile(file string) ([]setting, []Error) {
	data, err := slurp(file)
	if err != nil {
		untrusted := errors.Is(err, ErrUntrusted)
		return nil, []Error{{File: file, Text: cause(err).Error(), Untrusted: untrusted}}
	}
	return parse(file, data)
}

func slurp(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if err := trusted(info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("larger than %d bytes", maxFile)
	}
	return data, err
}

// cause drops the path from an error of package os: the line begins with it already.
func cause(err error) error {
	if path := new(os.PathError); errors.As(err, &path) {
		return path.Err
	}
	return err
}

func parse(file string, data []byte) ([]setting, []Error) {
	text := strings.TrimPrefix(string(data), "\xef\xbb\xbf") // the parser drops it, and counts from behind it
	var errs []Error
	for {
		var root map[string]toml.Primitive
		md, err := toml.Decode(text, &root)
		if err == nil {
			r := reader{file: file, text: text, md: &md}
			r.table(nil, root)
			return r.found, errs
		}
		one := syntax(file, text, err)
		errs = append(errs, one)
		quoted, is := quoteMode(text, one)
		if !is {
			return nil, errs
		}
		text = quoted // so that the other errors are found as well
	}
}

// quoteMode is the text with a mode in quotes for which the parser stopped.
func quoteMode(text string, at Error) (quoted string, is bool) {
	line := nthLine(text, at.Line)
	m := bareOctal.FindStringSubmatch(line)
	if m == nil {
		return "", false
	}
	lines := strings.Split(text, "\n")
	lines[at.Line-1] = strings.Replace(line, m[2], strconv.Quote(m[2]), 1)
	return strings.Join(lines, "\n"), true
}

func syntax(file, text string, err error) Error {
	e := Error{File: file, Text: err.Error()}
	if at := (toml.ParseError{}); errors.As(err, &at) {
		e.Line, e.Text = lineOf(text, at.Position), at.Message
	}
	e.Text = strings.ReplaceAll(e.Text, "\n", " ")
	if m := bareOctal.FindStringSubmatch(nthLine(text, e.Line)); m != nil {
		e.Key, e.Text = m[1], fmt.Sprintf("write it in quotes: %s = \"%s\"", m[1], m[2])
	}
	return e
}

// bareOctal is a mode as a shell has it, which TOML takes for a number that must not begin with 0.
var bareOctal = regexp.MustCompile(`^\s*(\w+)\s*=\s*(0[0-7]+)\s*(?:#.*)?$`)

// nthLine counts from 1; "" where there is none.
func nthLine(text string, n int) string {
	lines := strings.Split(text, "\n")
	if n < 1 || n > len(lines) {
		return ""
	}
	return strings.TrimSuffix(lines[n-1], "\r")
}

// lineOf counts lines up to where a token starts. The parser's own number is that of its end: the
// line after, if what it did not expect was the end of a line.
func lineOf(text string, at toml.Position) int {
	start := min(max(at.Start, 0), len(text))
	return 1 + strings.Count(text[:start], "\n")
}

type reader struct {
	file, text string
	md         *toml.MetaData
	found      []setting
}

// table takes every value of a table, in order of their keys, and of the tables in it. Inline
// tables and dotted keys are the same to TOML, and so to us.
func (r *reader) table(path []string, in map[string]toml.Primitive) {
	for _, key := range names(in) {
		raw := in[key]
		at := append(path[:len(path):len(path)], key)
		value, line := r.look(raw)
		if _, isTable := value.(map[string]any); !isTable {
			r.found = append(r.found, setting{at, value, r.file, line})
			continue
		}
		mine := len(r.found)
		r.found = append(r.found, setting{at, nil, r.file, line})
		var inner map[string]toml.Primitive
		if err := r.md.PrimitiveDecode(raw, &inner); err == nil {
			r.table(at, inner)
		}
		r.found[mine].line = first(r.found[mine:])
	}
}

// first is where a table starts: at its own line, or, if another one's header made it ([pool.fast]
// makes "pool"), at the first of what is in it.
func first(table []setting) int {
	line := table[0].line
	for _, s := range table[1:] {
		if table[0].line == 0 && s.line > 0 && (line == 0 || s.line < line) {
			line = s.line
		}
	}
	return line
}

// look returns a value and its line. The parser knows the place of every key and tells it only in
// an error, so the value is decoded into something that always has one.
func (r *reader) look(raw toml.Primitive) (any, int) {
	var p probe
	err := r.md.PrimitiveDecode(raw, &p)
	if at := (toml.ParseError{}); errors.As(err, &at) && at.Position.Line > 0 {
		return p.value, lineOf(r.text, at.Position)
	}
	return p.value, 0
}

type probe struct{ value any }

var errProbe = errors.New("only the position is wanted")

func (p *probe) UnmarshalTOML(v any) error { p.value = v; return errProbe }

// dropInDir is beside the file.
const dropInDir = "conf.d"

// dropIns are the files of conf.d beside file, in name order. Hidden files and other suffixes are
// not ours: editors and package managers leave them.
func dropIns(file string) ([]string, error) {
	dir := filepath.Join(filepath.Dir(file), dropInDir)
	entries, err := os.ReadDir(dir) // sorted by name
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, Errors{{File: dir, Text: cause(err).Error()}}
	}
	var files []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && strings.HasSuffix(e.Name(), ".toml") {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}

// Stamp returns a text that is another one when a file that Load would read was changed, came or
// went, and when the last of them was changed, as far as the files say. No file is read.
func Stamp(file string) (stamp string, changed time.Time) {
	files := []string{file}
	more, err := dropIns(file)
	var b strings.Builder
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	for _, name := range append(files, more...) {
		info, err := os.Stat(name)
		if err != nil {
			fmt.Fprintln(&b, err)
			continue
		}
		if info.ModTime().After(changed) {
			changed = info.ModTime()
		}
		fmt.Fprintln(&b, name, info.Size(), info.ModTime().UnixNano())
		if st, known := info.Sys().(*syscall.Stat_t); known {
			fmt.Fprintln(&b, st.Ino, st.Ctim) // its owner or mode may have changed
		}
	}
	return b.String(), changed
}

// ErrUntrusted is wrapped where a user other than root and this process's can write what
// root's commands believe. A configuration names a kubeconfig, and that a program, which they run.
var ErrUntrusted = errors.New("others can write it")

// trusted refuses a file or directory that others can write. In a directory with the sticky bit
// they replace no file.
func trusted(info fs.FileInfo) error {
	st, known := info.Sys().(*syscall.Stat_t)
	switch {
	case known && st.Uid != 0 && st.Uid != uint32(os.Geteuid()):
		return fmt.Errorf("%w: it belongs to user %d", ErrUntrusted, st.Uid)
	case info.IsDir() && info.Mode()&fs.ModeSticky != 0:
		return nil
	case info.Mode()&0o022 != 0:
		return fmt.Errorf("%w: its mode is %04o", ErrUntrusted, info.Mode().Perm())
	}
	return nil
}

// checkDirectories refuses directories in which others can put files beside the configuration, or
// in place of it: that of the path, and that of what it links to.
func (l *loader) checkDirectories() {
	dirs := []string{filepath.Dir(l.files[0]), filepath.Join(filepath.Dir(l.files[0]), dropInDir)}
	if real, err := filepath.EvalSymlinks(l.files[0]); err == nil {
		dirs = append(dirs, filepath.Dir(real))
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			continue // reading the files says so
		}
		if err := trusted(info); err != nil {
			l.errors = append(l.errors, Error{File: dir, Text: err.Error(), Untrusted: true})
		}
	}
}

// checkKubeconfig looks at who else can write the key to the cluster, or read it. That it is absent
// or unreadable is found out, and said, by the daemon that wants it.
func (l *loader) checkKubeconfig() {
	info, err := os.Stat(l.config.Kubeconfig)
	if err != nil {
		return
	}
	at, mode := l.whole("kubeconfig"), info.Mode().Perm()
	if mode&0o022 != 0 {
		l.refuse(at, "%v: %s has mode %04o", ErrUntrusted, l.config.Kubeconfig, mode)
		l.errors[len(l.errors)-1].Untrusted = true
	} else if mode&0o004 != 0 {
		l.warn(at, "every user of the host can read %s (mode %04o)", l.config.Kubeconfig, mode)
	}
}
