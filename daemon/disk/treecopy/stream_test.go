package treecopy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

const unlimited = math.MaxInt64

// written is the stream of a tree.
func written(t testing.TB, source string) ([]byte, Copied) {
	t.Helper()
	var stream bytes.Buffer
	e := NewEncoder(&stream)
	before := descriptors(t)
	from := open(t, source)
	done, err := Write(t.Context(), from, e, Options{})
	must(t, err, e.End())
	if after := descriptors(t); after != before+1 {
		t.Errorf("%d descriptors are open, before %d", after-1, before)
	}
	return stream.Bytes(), done
}

// fresh is an empty directory.
func fresh(t testing.TB, dir string) (path string, fd int) {
	t.Helper()
	path, err := os.MkdirTemp(dir, "copy")
	must(t, err)
	return path, open(t, path)
}

// A tree that went through a stream is what it was, attribute by attribute, also on another
// filesystem. What a container cannot have set is left out and counted. The count that is made
// before says how much comes.
func TestStream(t *testing.T) {
	other := on(t, "ext4", "-L", "other")
	for _, fstype := range []string{"xfs", "btrfs", "ext4"} {
		t.Run(fstype, func(t *testing.T) {
			dir := on(t, fstype)
			source := filepath.Join(dir, "source")
			must(t, os.Mkdir(source, 0o700))
			plenty(t, source)
			must(t, unix.Mknod(filepath.Join(source, "device"), unix.S_IFCHR|0o600, 0x103),
				unix.Setxattr(filepath.Join(source, "z"), defaultACL, []byte(acl), 0))
			dated := func() {
				times := []unix.Timespec{{Sec: 1_000_000_009}, {Sec: 1_100_000_009, Nsec: 9876543}}
				must(t, unix.UtimesNanoAt(unix.AT_FDCWD, source, times, 0))
			}
			dated()
			unix.Sync()
			stream, sent := written(t, source)
			counted, err := Write(t.Context(), open(t, source), nil, Options{})
			must(t, err)
			if want := (Copied{Directories: 6, Files: 8, HardLinks: 3, Symlinks: 3, FIFOs: 1,
				Devices: 1, Lost: 1, Bytes: sent.Bytes}); sent != want || counted != want {
				t.Errorf("sent %+v, counted %+v", sent, counted)
			}
			must(t, os.Remove(filepath.Join(source, "device")),
				unix.Removexattr(filepath.Join(source, "z"), "trusted.two"))
			dated()
			want := describe(t, source)
			for _, at := range []string{dir, other} {
				path, to := fresh(t, at)
				most := uint64(sent.Directories + sent.Files + sent.HardLinks + sent.Symlinks + 1)
				got, err := Read(t.Context(), NewDecoder(bytes.NewReader(stream)), to, most,
					Options{Limit: sent.Bytes})
				must(t, err)
				unix.Sync()
				is, was := describe(t, path), maps.Clone(want)
				if at == other { // where holes are of other sizes
					sameData(t, path, source, was)
					for _, all := range []map[string]string{is, was} {
						for name, text := range all {
							all[name] = placed.ReplaceAllString(text, "")
						}
					}
				}
				compare(t, is, was)
				if sent.Devices, sent.Lost, got.Lost = 0, 0, 0; got != sent {
					t.Errorf("received %+v, sent %+v", got, sent)
				}
			}
		})
	}
}

// placed is what describe says of where data is, and of what xfs alone has.
var placed = regexp.MustCompile(`\[\d+-\d+ "[^"]*"\]| trusted\.SGI_ACL_\w+="(?:[^"\\]|\\.)*"`)

// sameData compares the files of two trees byte by byte.
func sameData(t testing.TB, one, other string, names map[string]string) {
	t.Helper()
	for name, text := range names {
		if !strings.Contains(text, " size ") {
			continue
		}
		a, err := os.ReadFile(one + name)
		must(t, err)
		b, err := os.ReadFile(other + name)
		must(t, err)
		if !bytes.Equal(a, b) {
			t.Errorf("%q has other data", name)
		}
	}
}

// No part of a stream is used that is not as it was written: it is refused wherever it is cut off,
// and whichever byte is another one.
func TestStreamDamaged(t *testing.T) {
	dir := hosttest.Dir(t)
	source := filepath.Join(dir, "source")
	must(t, os.Mkdir(source, 0o700))
	must(t, os.WriteFile(filepath.Join(source, "file"), bytes.Repeat([]byte("x"), 300), 0o600))
	stream, _ := written(t, source)
	read := func(of []byte) error {
		path, to := fresh(t, dir)
		defer os.RemoveAll(path)
		_, err := Read(t.Context(), NewDecoder(bytes.NewReader(of)), to, unlimited,
			Options{Limit: unlimited})
		return err
	}
	must(t, read(stream))
	for n := range stream {
		if err := read(stream[:n]); !errors.Is(err, ErrCutOff) {
			t.Fatalf("cut off after %d of %d bytes: %v", n, len(stream), err)
		}
		damaged := slices.Clone(stream)
		damaged[n] ^= 4
		if err := read(damaged); !errors.Is(err, ErrStream) && !errors.Is(err, ErrCutOff) {
			t.Fatalf("byte %d of %d damaged: %v", n, len(stream), err)
		}
	}
	two := chunkMax + chunkMax/2
	must(t, os.WriteFile(filepath.Join(source, "large"), make([]byte, two), 0o600))
	unix.Sync()
	stream, _ = written(t, source)
	swapped := slices.Concat(stream[4+chunkMax+32:len(stream)-36], stream[:4+chunkMax+32],
		stream[len(stream)-36:])
	if err := read(swapped); !errors.Is(err, ErrStream) {
		t.Errorf("two chunks in another order: %v", err)
	}
	short := append(slices.Clone(stream[:4+chunkMax+32]), stream[len(stream)-36:]...)
	if err := read(short); !errors.Is(err, ErrStream) {
		t.Errorf("without a chunk: %v", err)
	}
}

// Whatever a stream says, nothing is made outside of the directory, and nothing that a container
// could not have made.
func TestStreamHostile(t *testing.T) {
	dir := on(t, "ext4")
	must(t, os.Mkdir(filepath.Join(dir, "outside"), 0o755))
	outside := describe(t, filepath.Join(dir, "outside"))
	top := item{Kind: itemUp, Name: []byte(".")}
	file := func(name string) item { return item{Kind: itemFile, Name: []byte(name), Mode: 0o600} }
	of := func(change func(*item)) item { i := file("x"); change(&i); return i }
	piece := func(at int64, n int, text string) []byte {
		p := binary.BigEndian.AppendUint32(nil, uint32(n))
		return append(binary.BigEndian.AppendUint64(p, uint64(at)), text...)
	}
	end, large := make([]byte, 4), of(func(i *item) { i.Size = 10 })
	link := item{Kind: itemSymlink, Name: []byte("out"), Target: []byte(dir + "/outside")}
	attr := func(name string) item {
		return of(func(i *item) { i.Attrs = []attribute{{[]byte(name), []byte("x")}} })
	}
	dirOf := func(name string) item { return item{Kind: itemDir, Name: []byte(name)} }
	other := of(func(i *item) { i.Name, i.Size = []byte("y"), 10 })
	limited := []any{large, piece(0, 10, "0123456789"), end, top}
	for name, c := range map[string]struct {
		items []any
		want  error
	}{
		"..":               {[]any{file(".."), end, top}, ErrStream},
		".":                {[]any{file("."), end, top}, ErrStream},
		"a path":           {[]any{file("../outside/x"), end, top}, ErrStream},
		"an absolute one":  {[]any{file(dir + "/outside/x"), end, top}, ErrStream},
		"no name":          {[]any{file(""), end, top}, ErrStream},
		"a NUL":            {[]any{file("a\x00b"), end, top}, ErrStream},
		"a long name":      {[]any{file(strings.Repeat("n", 256)), end, top}, ErrStream},
		"a directory ..":   {[]any{dirOf(".."), file("x"), end}, ErrStream},
		"a file on a link": {[]any{link, file("out"), end, top}, unix.EEXIST},
		"through a link":   {[]any{link, dirOf("out"), file("x"), end}, unix.EEXIST},
		"a file twice":     {[]any{file("x"), end, file("x"), end, top}, unix.EEXIST},
		"above the top":    {[]any{item{Kind: itemUp, Name: []byte("x")}, top}, ErrStream},
		"behind the top":   {[]any{top, file("x"), end, top}, ErrStream},
		"the top below":    {[]any{dirOf("x"), top}, ErrStream},
		"no end":           {[]any{file("x"), end}, ErrStream},
		"a link to none":   {[]any{item{Kind: itemLink, Name: []byte("x"), Key: 7}}, ErrStream},
		"a label":          {[]any{attr(label), end, top}, ErrStream},
		"a security one":   {[]any{attr("security.ima"), end, top}, ErrStream},
		"a trusted one":    {[]any{attr("trusted.overlay.opaque"), end, top}, ErrStream},
		"nfs4":             {[]any{attr("system.nfs4_acl"), end, top}, ErrStream},
		"user with a NUL":  {[]any{attr("user.\x00security.ima"), end, top}, ErrStream},
		"a long value": {[]any{of(func(i *item) {
			i.Attrs = []attribute{{[]byte("user.x"), make([]byte, valueMax+1)}}
		}), end, top}, ErrStream},
		"an owner -1":     {[]any{of(func(i *item) { i.UID = 1<<32 - 1 }), end, top}, ErrStream},
		"a device's mode": {[]any{of(func(i *item) { i.Mode = 0o20000 }), end, top}, ErrStream},
		"a device":        {[]any{of(func(i *item) { i.Kind = "device" }), top}, ErrStream},
		"a time":          {[]any{of(func(i *item) { i.Mtime[1] = 1e9 }), end, top}, ErrStream},
		"negative":        {[]any{of(func(i *item) { i.Size = -1 }), end, top}, ErrStream},
		"behind its size": {[]any{large, piece(5, 6, "behind"), end, top}, ErrStream},
		"before 0":        {[]any{large, piece(-5, 6, "before"), end, top}, ErrStream},
		"twice":           {[]any{large, piece(2, 2, "aa"), piece(1, 2, "bb"), end}, ErrStream},
		"a large piece":   {[]any{large, piece(0, chunkMax+1, ""), end, top}, ErrStream},
		"cut short":       {[]any{large, piece(0, 10, "abc")}, ErrStream},
		"an odd field":    {[]any{map[string]string{"path": "/etc"}, top}, ErrStream},
		"no JSON":         {[]any{[]byte("\x00\x00\x00\x01{"), top}, ErrStream},
		"a long item":     {[]any{[]byte("\x7f\x00\x00\x01{"), top}, ErrStream},
		"much data":       {slices.Concat([]any{other}, limited[1:3], limited), ErrLimit},
		"many entries": {[]any{file("1"), end, file("2"), end, file("3"), end, file("4"), end, top},
			ErrLimit},
		"good": {limited, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var stream bytes.Buffer
			e := NewEncoder(&stream)
			for _, i := range c.items {
				if raw, is := i.([]byte); is {
					_, err := e.Write(raw)
					must(t, err)
					continue
				}
				if err := WriteItem(e, i); err != nil {
					t.Fatal(err)
				}
			}
			must(t, e.End())
			_, to := fresh(t, dir)
			_, err := Read(t.Context(), NewDecoder(&stream), to, 3, Options{Limit: 15})
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("got %v", err)
			}
		})
	}
	compare(t, describe(t, filepath.Join(dir, "outside")), outside)
}

// What is written to while it is sent is not sent.
func TestStreamWritten(t *testing.T) {
	dir := on(t, "ext4")
	source := filepath.Join(dir, "source")
	file := filepath.Join(source, "file")
	must(t, os.Mkdir(source, 0o700), os.WriteFile(file, make([]byte, 3*chunkMax), 0o600))
	unix.Sync()
	for name, change := range map[string]func() error{
		"written": func() error { return os.WriteFile(file, []byte("new"), 0o600) },
		"chmod":   func() error { return os.Chmod(file, 0o640) },
	} {
		steps := 0
		_, err := Write(t.Context(), open(t, source), NewEncoder(io.Discard), Options{
			Step: func() error {
				if steps++; steps == 4 { // the top, the file, a piece
					return change()
				}
				return nil
			}})
		if !errors.Is(err, ErrWritten) || steps < 4 {
			t.Errorf("%s: %v after %d steps", name, err, steps)
		}
		must(t, os.WriteFile(file, make([]byte, 3*chunkMax), 0o600))
		unix.Sync()
	}
}

// Much data takes no more memory than little.
func TestStreamMemory(t *testing.T) {
	dir := hosttest.Dir(t)
	took := func(size int) uint64 {
		source := filepath.Join(dir, "source")
		must(t, os.RemoveAll(source), os.Mkdir(source, 0o700))
		must(t, os.WriteFile(filepath.Join(source, "file"), make([]byte, size), 0o600))
		path, to := fresh(t, dir)
		defer os.RemoveAll(path)
		from, read, write := open(t, source), (*io.PipeReader)(nil), (*io.PipeWriter)(nil)
		read, write = io.Pipe()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		go func() {
			e := NewEncoder(write)
			_, err := Write(t.Context(), from, e, Options{})
			write.CloseWithError(errors.Join(err, e.End()))
		}()
		_, err := Read(t.Context(), NewDecoder(read), to, 2, Options{Limit: int64(size)})
		must(t, err)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	little, much := took(1<<20), took(96<<20)
	if much > little+1<<20 {
		t.Errorf("%d bytes for 96 MiB, %d for 1 MiB", much, little)
	}
}
