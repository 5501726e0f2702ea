package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

const pv = "pvc-1"

// full has something in every field.
func full() Record {
	return Record{
		Version: Version, Kind: Snapshot, PV: pv, Namespace: "default", Claim: "data", ClaimUID: "uid", Class: "fast", Provisioner: "hostpath-provisioner",
		Node: "node-a", Scope: "node", Source: "hostPath", Reclaim: "Delete", OnDelete: "archive", Directory: pv, Requested: 1 << 30,
		Promised: 2 << 30, ProjectID: 1213202432, Origin: Origin{Kind: Snapshot, Name: "snap-1", UID: "uid-of-snap-1"},
		Atomic: true, Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Retained: true,
		Unheld: true, Unpublished: true, Replaced: `{"kind":"PersistentVolume"}`,
		Moving: `{"object":{}}`,
	}
}

func encoded(t testing.TB, r Record) string {
	t.Helper()
	text, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func read(t testing.TB, elements ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"testdata"}, elements...)...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestRoundTrip(t *testing.T) {
	text := encoded(t, full())
	got, err := Decode([]byte(text), pv)
	if err != nil || got != full() {
		t.Errorf("%v, %+v", err, got)
	}
	v := reflect.ValueOf(got)
	for i := range v.NumField() {
		if field := v.Type().Field(i); field.IsExported() && field.Tag.Get("json") != "-" && v.Field(i).IsZero() {
			t.Errorf("the test does not fill in %s", field.Name)
		}
	}
	if lines := strings.Count(text, "\n"); lines < v.NumField() {
		t.Errorf("%d lines, want one for each field:\n%s", lines, text)
	}
}

// What was found about a record is not written into it, and fields that say nothing are left out.
func TestLeastText(t *testing.T) {
	got := encoded(t, Record{PV: pv, Directory: pv, Place: InTrash, Archived: true})
	want := `{
  "version": 2,
  "pv": "pvc-1",
  "namespace": "",
  "claim": "",
  "claimUID": "",
  "directory": "pvc-1",
  "created": "0001-01-01T00:00:00Z"
}
`
	if got != want {
		t.Errorf("got %s", got)
	}
}

// Records of version 1 are read whole, and are of version 2 when they are written next.
func TestVersion1IsUpgraded(t *testing.T) {
	files, err := filepath.Glob("testdata/v1/*.json")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		text := read(t, "v1", filepath.Base(file))
		r, err := Decode(text, pv)
		if err != nil || r.Version != 1 || r.Kind != Volume {
			t.Errorf("%s: %v, %+v", file, err, r)
		}
		old, err := decodeVersion1(text)
		if err != nil {
			t.Errorf("%s: the reader of version 1: %v", file, err)
		}
		upgraded, err := Decode([]byte(encoded(t, r)), pv)
		if err != nil || upgraded.Version != 2 {
			t.Errorf("%s: written again: %v, version %d", file, err, upgraded.Version)
		}
		now := reflect.ValueOf(upgraded)
		for i := range reflect.TypeFor[version1]().NumField() { // every field that version 1 had
			name := reflect.TypeFor[version1]().Field(i).Name
			if was := reflect.ValueOf(old).Field(i); name != "Version" && !reflect.DeepEqual(was.Interface(), now.FieldByName(name).Interface()) {
				t.Errorf("%s: %s was %v and is %v", file, name, was, now.FieldByName(name))
			}
		}
	}
}

// version1 and decodeVersion1 are the record and the reader of version 1, frozen: they stand for
// the daemons that people have installed.
type version1 struct {
	Version     int       `json:"version"`
	PV          string    `json:"pv"`
	Namespace   string    `json:"namespace"`
	Claim       string    `json:"claim"`
	ClaimUID    string    `json:"claimUID"`
	Class       string    `json:"class,omitempty"`
	Provisioner string    `json:"provisioner,omitempty"`
	Node        string    `json:"node,omitempty"`
	Scope       string    `json:"scope,omitempty"`
	Source      string    `json:"source,omitempty"`
	Reclaim     string    `json:"reclaim,omitempty"`
	OnDelete    string    `json:"onDelete,omitempty"`
	Directory   string    `json:"directory"`
	Requested   int64     `json:"requested,omitempty"`
	Created     time.Time `json:"created"`
	Retained    bool      `json:"retained,omitempty"`
	Unpublished bool      `json:"unpublished,omitempty"`
	Replaced    string    `json:"replaced,omitempty"`
}

var (
	errNewer1   = errors.New("version 1: newer")
	errDamaged1 = errors.New("version 1: damaged")
)

func decodeVersion1(text []byte) (r version1, err error) {
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return r, errDamaged1
	}
	if v.Version > 1 {
		return r, errNewer1
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return r, errDamaged1
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) || r.Version < 1 {
		return r, errDamaged1
	}
	return r, nil
}

// A daemon of version 1 refuses every record of version 2 because of its version, before it looks
// at anything else: it then does nothing with the volume (volume.TestDamagedRecord).
func TestVersion1Reader(t *testing.T) {
	for name, r := range map[string]Record{"full": full(), "least": {PV: pv, Directory: pv}} {
		if _, err := decodeVersion1([]byte(encoded(t, r))); !errors.Is(err, errNewer1) {
			t.Errorf("%s: got %v, want %v", name, err, errNewer1)
		}
	}
}

// What a later program adds to a record of this version is kept when the record is written again,
// also in the changed record.
func TestUnknownFieldsAreKept(t *testing.T) {
	text := strings.Replace(encoded(t, full()), `"pv"`, `"later": {"b": [1, "<&>"], "a": null}, "also": 7, "pv"`, 1)
	r, err := Decode([]byte(text), pv)
	if err != nil {
		t.Fatal(err)
	}
	r.Retained = false
	again := encoded(t, r)
	var got map[string]any
	if err := json.Unmarshal([]byte(again), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"b": []any{1.0, "<&>"}, "a": nil}
	if !reflect.DeepEqual(got["later"], want) || got["also"] != 7.0 || got["retained"] != nil || got["pv"] != pv {
		t.Errorf("got %s", again)
	}
	if second, err := Decode([]byte(again), pv); err != nil || second != r {
		t.Errorf("read again: %v, %+v", err, second)
	}
}

// A record that is refused says why, and whether a newer program would read it.
func TestRefused(t *testing.T) {
	good := encoded(t, full())
	change := func(old, now string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%s is not in %s", old, good)
		}
		return strings.Replace(good, old, now, 1)
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty":                      {"", "the record cannot be read: unexpected end of JSON input"},
		"null":                       {"null", "the record cannot be read: version 0"},
		"no fields":                  {"{}", "the record cannot be read: version 0"},
		"negative version":           {change(`"version": 2`, `"version": -1`), "the record cannot be read: version -1"},
		"version 3":                  {`{"version": 3, "pv": {}}`, "the record cannot be read: version 3 is written by a newer version than 2"},
		"another volume":             {change(`"pv": "pvc-1"`, `"pv": "pvc-2"`), `the record cannot be read: it is of volume "pvc-2"`},
		"negative promise":           {change(`"promised": 2147483648`, `"promised": -1`), "the record cannot be read: -1 bytes are promised"},
		"project beyond 32 bits":     {change(`1213202432`, `4294967296`), "the record cannot be read: json: cannot unmarshal number 4294967296 into Go struct field Record.projectID of type uint32"},
		"a field of another case":    {change(`"pv"`, `"PV": "pvc-2", "pv"`), `the record cannot be read: unknown field "PV"`},
		"unknown field in a field":   {change(`"uid": "uid-of-snap-1"`, `"uid": "", "later": 1`), `the record cannot be read: json: unknown field "later"`},
		"unknown field of version 1": {`{"version": 1, "pv": "pvc-1", "directory": "d", "later": 1}`, `the record cannot be read: unknown field "later"`},
		"version 2 in version 1":     {`{"version": 1, "pv": "pvc-1", "directory": "d", "kind": "snapshot"}`, `the record cannot be read: unknown field "kind"`},
	} {
		_, err := Decode([]byte(c.text), pv)
		if err == nil || err.Error() != c.want || !errors.Is(err, ErrDamaged) || errors.Is(err, ErrNewer) != (name == "version 3") {
			t.Errorf("%s: got  %v\nwant %s", name, err, c.want)
		}
	}
}

// A text that could not be read again is not written.
func TestTooLarge(t *testing.T) {
	r := full()
	r.Replaced = strings.Repeat("x", MaxSize)
	if text, err := r.Encode(); err == nil {
		t.Errorf("%d bytes were encoded", len(text))
	}
}

// Only a volume in its place, or in the trash, can have an object.
func TestObjects(t *testing.T) {
	for name, c := range map[string]struct {
		r             Record
		has, mayHave  bool
		canBePutWhole bool
	}{
		"in the pool":           {Record{Place: InPool}, true, true, false},
		"not published":         {Record{Place: InPool, Unpublished: true}, false, true, false},
		"retained":              {Record{Place: InPool, Retained: true}, false, false, false},
		"not held":              {Record{Place: InPool, Unheld: true}, false, true, false},
		"in the trash":          {Record{Place: InTrash}, false, true, true},
		"retained in the trash": {Record{Place: InTrash, Retained: true}, false, false, true},
		"half emptied":          {Record{Place: Emptying}, false, false, false},
		"in the archive":        {Record{Place: InArchive}, false, false, true},
		"in staging":            {Record{Place: InStaging}, false, false, false},
		"gone":                  {Record{Place: Nowhere}, false, false, false},
	} {
		if c.r.HasObject() != c.has || c.r.MayHaveObject() != c.mayHave || c.r.Whole() != c.canBePutWhole {
			t.Errorf("%s: has %t, may have %t, whole %t", name, c.r.HasObject(), c.r.MayHaveObject(), c.r.Whole())
		}
	}
}

// A record never panics, never names a directory outside, and survives being written again.
func FuzzRecord(f *testing.F) {
	good := encoded(f, full())
	for _, text := range []string{good, good[:len(good)/2], "", "null", "{}", `{"version": 3}`, strings.Replace(good, `"pv"`, `"later": {"x": 1}, "pv"`, 1)} {
		f.Add([]byte(text), pv)
	}
	f.Add([]byte(good), "")
	for _, name := range []string{"0.1.0.json", "full.json", "least.json"} {
		f.Add(read(f, "v1", name), pv)
	}
	f.Fuzz(func(t *testing.T, text []byte, pv string) {
		r, err := Decode(text, pv)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("not ErrDamaged: %v", err)
			}
			return
		}
		if CheckPV(r.PV) != nil || CheckDirectory(r.Directory) != nil || strings.ContainsAny(r.Directory+r.PV, "/\x00") {
			t.Fatalf("accepted %+v", r)
		}
		again, err := r.Encode()
		if err != nil {
			if len(text) > MaxSize/8 { // escaping makes it longer
				return
			}
			t.Fatal(err)
		}
		back, err := Decode(again, pv)
		if back.Version = r.Version; err != nil || !back.Created.Equal(r.Created) {
			t.Fatalf("%v: %s", err, again)
		}
		if back.Created = r.Created; back != r {
			t.Fatalf("%+v came back as %+v", r, back)
		}
	})
}
