package record

import (
	"encoding/json"
	"errors"
	"fmt"
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
		Moving: `{"object":{}}`, Sent: "stream", Partial: ".links-1",
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

// The samples of version 2, the first that was released, are read whole, and written again they say
// the same.
func TestVersion2IsRead(t *testing.T) {
	files, err := filepath.Glob("testdata/v2/*.json")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		text := read(t, "v2", filepath.Base(file))
		was, err := decodeVersion2(text)
		if err != nil {
			t.Fatalf("%s: the reader of version 2: %v", file, err)
		}
		r, err := Decode(text, pv)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		again, err := Decode([]byte(encoded(t, r)), pv)
		if err != nil || again.Version != Version {
			t.Errorf("%s: written again: %v, version %d", file, err, again.Version)
		}
		now, then := reflect.ValueOf(again), reflect.ValueOf(was)
		for i := range then.NumField() { // every field that version 2 had
			name := then.Type().Field(i).Name
			want, got := fmt.Sprint(then.Field(i)), fmt.Sprint(now.FieldByName(name))
			if name != "Version" && got != want {
				t.Errorf("%s: %s was %s and is %s", file, name, want, got)
			}
			if strings.HasSuffix(file, "full.json") && then.Field(i).IsZero() {
				t.Errorf("%s: nothing is in %s", file, name)
			}
		}
	}
}

// version2 and decodeVersion2 are the record and the reader of version 2, frozen: they stand for
// the daemons that people have installed.
type version2 struct {
	Version int    `json:"version"`
	Kind    string `json:"kind,omitempty"`

	PV          string `json:"pv"`
	Namespace   string `json:"namespace"`
	Claim       string `json:"claim"`
	ClaimUID    string `json:"claimUID"`
	Class       string `json:"class,omitempty"`
	Provisioner string `json:"provisioner,omitempty"`
	Node        string `json:"node,omitempty"`
	Scope       string `json:"scope,omitempty"`
	Source      string `json:"source,omitempty"`
	Reclaim     string `json:"reclaim,omitempty"`
	OnDelete    string `json:"onDelete,omitempty"`
	Directory   string `json:"directory"`
	Requested   int64  `json:"requested,omitempty"`
	Promised    int64  `json:"promised,omitempty"`
	ProjectID   uint32 `json:"projectID,omitempty"`
	Origin      struct {
		Kind string `json:"kind,omitempty"`
		Name string `json:"name"`
		UID  string `json:"uid"`
	} `json:"origin,omitzero"`
	Atomic      bool      `json:"atomic,omitempty"`
	Created     time.Time `json:"created"`
	Retained    bool      `json:"retained,omitempty"`
	Unheld      bool      `json:"unheld,omitempty"`
	Unpublished bool      `json:"unpublished,omitempty"`
	Replaced    string    `json:"replaced,omitempty"`
	Moving      string    `json:"moving,omitempty"`
}

var (
	errNewer2   = errors.New("version 2: newer")
	errDamaged2 = errors.New("version 2: damaged")
)

// decodeVersion2 leaves fields alone that it does not know: it keeps them when it writes.
func decodeVersion2(text []byte) (r version2, err error) {
	switch err := json.Unmarshal(text, &r); {
	case r.Version > 2:
		return version2{}, errNewer2
	case err != nil || r.Version < 2:
		return version2{}, errDamaged2
	}
	return r, nil
}

// What this program writes is read by a daemon of version 2, whole, or refused because of its
// version alone: it then does nothing with the volume (volume.TestDamagedRecord).
func TestVersion2Reader(t *testing.T) {
	for name, r := range map[string]Record{"full": full(), "least": {PV: pv, Directory: pv}} {
		got, err := decodeVersion2([]byte(encoded(t, r)))
		if Version > 2 {
			if !errors.Is(err, errNewer2) {
				t.Errorf("%s: got %v, want %v", name, err, errNewer2)
			}
			continue
		}
		then, now := reflect.ValueOf(got), reflect.ValueOf(r)
		for i := range then.NumField() {
			field := then.Type().Field(i).Name
			got, want := fmt.Sprint(then.Field(i)), fmt.Sprint(now.FieldByName(field))
			if err != nil || field != "Version" && got != want {
				t.Errorf("%s: %v, %s is %s, want %s", name, err, field, got, want)
			}
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
		"empty":                    {"", "the record cannot be read: unexpected end of JSON input"},
		"null":                     {"null", "the record cannot be read: version 0"},
		"no fields":                {"{}", "the record cannot be read: version 0"},
		"negative version":         {change(`"version": 2`, `"version": -1`), "the record cannot be read: version -1"},
		"version 3":                {`{"version": 3, "pv": {}}`, "the record cannot be read: version 3 is written by a newer version than 2"},
		"another volume":           {change(`"pv": "pvc-1"`, `"pv": "pvc-2"`), `the record cannot be read: it is of volume "pvc-2"`},
		"negative promise":         {change(`"promised": 2147483648`, `"promised": -1`), "the record cannot be read: -1 bytes are promised"},
		"project beyond 32 bits":   {change(`1213202432`, `4294967296`), "the record cannot be read: json: cannot unmarshal number 4294967296 into Go struct field Record.projectID of type uint32"},
		"a field of another case":  {change(`"pv"`, `"PV": "pvc-2", "pv"`), `the record cannot be read: unknown field "PV"`},
		"unknown field in a field": {change(`"uid": "uid-of-snap-1"`, `"uid": "", "later": 1`), `the record cannot be read: json: unknown field "later"`},
		"version 1, not released":  {change(`"version": 2`, `"version": 1`), "the record cannot be read: version 1"},
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
	for _, name := range []string{"hostpath.json", "full.json", "least.json"} {
		f.Add(read(f, "v2", name), pv)
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
