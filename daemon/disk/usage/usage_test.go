package usage

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

func volumeOf(pv string, bytes, limit, inodes, most uint64) Volume {
	return Volume{PV: pv, Usage: quota.Usage{Bytes: bytes, Inodes: inodes, Limit: quota.Limit{Bytes: limit, Inodes: most}}}
}

// A volume is told once when it takes nine tenths of a limit, and again only after it took less
// than 85 hundredths.
func TestFull(t *testing.T) {
	var w Watch
	for i, c := range []struct {
		bytes, inodes uint64
		told          bool
	}{{899, 0, false}, {900, 0, true}, {950, 0, false}, {860, 0, false}, {910, 0, false}, {849, 0, false}, {900, 0, true}, {0, 0, false}, {0, 90, true}, {990, 90, false}} {
		got := w.Full(Pool{Volumes: []Volume{volumeOf("a", c.bytes, 1000, c.inodes, 100), volumeOf("b", 1<<40, 0, 1<<20, 0)}})
		if (len(got) > 0) != c.told || c.told && got[0].PV != "a" {
			t.Errorf("%d: %d bytes, %d inodes: %v, want told %t", i, c.bytes, c.inodes, got, c.told)
		}
	}
	w.Full(Pool{})
	full := Pool{Volumes: []Volume{volumeOf("c", 900, 1000, 0, 0)}}
	w.Full(full)
	if w.Retract("c"); len(w.Full(full)) != 1 {
		t.Error("what could not be told is not told again")
	}
	if got := w.Full(Pool{Volumes: []Volume{volumeOf("a", 900, 1000, 0, 0)}}); len(got) != 1 {
		t.Errorf("a new volume of the name: %v", got)
	}
}

func TestNearly(t *testing.T) {
	for want, v := range map[string]Volume{
		"volume a takes 9.0 GiB of 10.0 GiB":            volumeOf("a", 9<<30, 10<<30, 5, 100),
		"volume b has 95 of 100 files and directories":  volumeOf("b", 9<<30, 10<<30, 95, 100),
		"volume c has 100 of 100 files and directories": volumeOf("c", 5, 0, 100, 100),
		"volume d takes 10.0 GiB of 10.0 GiB":           volumeOf("d", 10<<30, 10<<30, 0, 0),
	} {
		if got := Nearly(v); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestFullest(t *testing.T) {
	all := []Volume{volumeOf("d", 1, 10, 0, 0), volumeOf("c", 9, 10, 0, 0), volumeOf("b", 0, 10, 5, 10), volumeOf("a", 9, 10, 0, 0), volumeOf("none", 9, 0, 9, 0)}
	var got []string
	for _, v := range Fullest(all, 4) {
		got = append(got, v.PV)
	}
	if strings.Join(got, " ") != "a c b d" || len(Fullest(all, 0)) != 0 || len(Fullest(all, 99)) != 5 || all[0].PV != "d" {
		t.Errorf("got %v", got)
	}
}

func other(id uint32, bytes uint64) quota.Usage { return quota.Usage{ID: id, Bytes: bytes, Inodes: 1} }

// What the daemon's own files take is no escape, nor what others have on the filesystem.
func TestEscaped(t *testing.T) {
	theirs := other(9, 1<<40)
	theirs.Limit.Bytes = 1 << 41
	for name, c := range map[string]struct {
		pool Pool
		want string
	}{
		"nothing":                {Pool{}, ""},
		"the daemon's own":       {Pool{Others: []quota.Usage{other(0, 16<<20)}}, ""},
		"many records":           {Pool{Others: []quota.Usage{other(0, 16<<20+100*64<<10)}, Records: 100}, ""},
		"more than records":      {Pool{Others: []quota.Usage{other(0, 1<<30)}, Records: 100}, "files of 1.0 GiB are counted to projects that no volume has (0), so that no limit holds for them"},
		"another project":        {Pool{Others: []quota.Usage{other(0, 1<<20), other(7, 2<<20)}}, "files of 2.0 MiB are counted to projects that no volume has (7), so that no limit holds for them"},
		"two that are small":     {Pool{Others: []quota.Usage{other(7, 1<<20), other(8, 1<<20)}}, "files of 2.0 MiB are counted to projects that no volume has (7, 8), so that no limit holds for them"},
		"a small one":            {Pool{Others: []quota.Usage{other(7, 1<<20)}}, ""},
		"one that has a limit":   {Pool{Others: []quota.Usage{theirs}}, ""},
		"many":                   {Pool{Others: []quota.Usage{other(0, 1<<30), other(7, 1<<30), other(8, 1<<30), other(9, 1<<30)}}, "files of 4.0 GiB are counted to projects that no volume has (0, 7, 8), so that no limit holds for them"},
		"a filesystem of others": {Pool{Others: []quota.Usage{other(0, 1<<40), other(7, 1<<40)}, Mixed: true}, ""},
	} {
		if got := Escaped(c.pool); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// A pool of whose projects nearly all are taken is told once, and again after there were enough.
// One without project quotas, or without any volume, has enough.
func TestScarce(t *testing.T) {
	var w Watch
	for i, c := range []struct {
		taken, of   int
		told, check bool
	}{{0, 0, false, false}, {89, 100, false, false}, {90, 100, true, true}, {95, 100, false, true}, {85, 100, false, false}, {95, 100, false, true}, {84, 100, false, false}, {100, 100, true, true}, {1, 1, false, true}} {
		p := Pool{Taken: c.taken, Range: c.of, Volumes: []Volume{volumeOf("a", 1, 2, 0, 0)}}
		want := fmt.Sprintf("%d of the %d projects in quota_ids are taken, and each volume needs one; volumes of the pool have 1", c.taken, c.of)
		if told, found := w.Scarce(p), Scarce(p); (told == want) != c.told || (found == want) != c.check || !c.told && told != "" || !c.check && found != "" {
			t.Errorf("%d: told %q, found %q", i, told, found)
		}
	}
}

// It is told when it was seen twice, and again after it was gone.
func TestEscape(t *testing.T) {
	var w Watch
	for i, c := range []struct{ there, told bool }{{true, false}, {false, false}, {true, false}, {true, true}, {true, false}, {false, false}, {true, false}, {true, true}} {
		p := Pool{}
		if c.there {
			p.Others = []quota.Usage{other(7, 1<<30)}
		}
		if got := w.Escape(p); (got != "") != c.told {
			t.Errorf("%d: %q", i, got)
		}
	}
}

// A volume whose limit grows, or goes, is not nearly full any more, and is told again when the
// limit is as before. Each volume is judged by itself.
func TestFullWithOtherLimits(t *testing.T) {
	var w Watch
	w.Retract("none") // before the first look
	for i, c := range []struct {
		limit uint64
		told  string
	}{{1000, "a z"}, {1000, ""}, {2000, ""}, {1000, "a"}, {0, ""}, {1000, "a"}, {1058, ""}, {1000, ""}, {1059, ""}, {1000, "a"}} {
		var told []string
		for _, v := range w.Full(Pool{Volumes: []Volume{volumeOf("a", 900, c.limit, 0, 0), volumeOf("m", 899, 1000, 0, 0), volumeOf("z", 1000, 1000, 0, 0)}}) {
			told = append(told, v.PV)
		}
		if got := strings.Join(told, " "); got != c.told {
			t.Errorf("%d: limit %d: told %q, want %q", i, c.limit, got, c.told)
		}
	}
}

// Each bound of what the daemon's own files take is shown at both sides; nothing of it is allowed
// to other projects.
func TestEscapedBounds(t *testing.T) {
	const records = 10
	limited := other(7, 1<<30)
	limited.Limit.Inodes = 5
	for name, c := range map[string]struct {
		most    quota.Usage // that is no escape
		escapes bool        // with a byte more
	}{
		"without a project":                  {other(0, 16<<20+records*64<<10), true},
		"a project that no volume has":       {other(7, 1<<20), true},
		"a project whose inodes are limited": {limited, false},
	} {
		pool := Pool{Records: records, Others: []quota.Usage{c.most}}
		if got := Escaped(pool); got != "" {
			t.Errorf("%s: %q", name, got)
		}
		pool.Others[0].Bytes++
		if got := Escaped(pool); (got != "") != c.escapes {
			t.Errorf("%s, a byte more: %q", name, got)
		}
	}
}
