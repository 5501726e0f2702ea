package hostcheck

import "testing"

// A pool that other nodes have, too, has no node of its own; a new marker says nothing; and where the cluster is not known there is nothing to compare.
func TestWhoseMarker(t *testing.T) {
	for name, c := range map[string]struct {
		change func(e *Expect, f *Facts)
		want   string
	}{
		"this node's":                          {func(*Expect, *Facts) {}, ""},
		"another node's, shared":               {func(e *Expect, f *Facts) { e.Node, f.Marker.Marker.Node = "", "b" }, ""},
		"new":                                  {func(_ *Expect, f *Facts) { f.Marker.Marker.Node, f.Marker.Marker.Cluster = "", "" }, ""},
		"another node's":                       {func(_ *Expect, f *Facts) { f.Marker.Marker.Node = "b" }, ReasonOtherNode},
		"a former name is not this name":       {func(_ *Expect, f *Facts) { f.Marker.Marker.Node, f.Marker.Marker.FormerNodes = "b", "node-a" }, ReasonOtherNode},
		"another cluster's":                    {func(_ *Expect, f *Facts) { f.Marker.Marker.Cluster = "c" }, ReasonOtherCluster},
		"another cluster's, shared":            {func(e *Expect, f *Facts) { e.Node, f.Marker.Marker.Cluster = "", "c" }, ReasonOtherCluster},
		"another cluster's, and none known":    {func(e *Expect, f *Facts) { e.Cluster, f.Marker.Marker.Cluster = "", "c" }, ""},
		"the next cluster's":                   {func(_ *Expect, f *Facts) { f.Marker.Marker.Cluster = ClusterAny }, ""},
		"another node's, and nothing is there": {func(_ *Expect, f *Facts) { f.Marker = MarkerFact{Marker: Marker{ID: "AAAA", Node: "b", Cluster: "c"}} }, ReasonNotSeen},
	} {
		e, f := good()
		c.change(&e, &f)
		got := ""
		if found := Check(e, f).Findings; len(found) > 0 {
			got = found[0].Reason
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestNetworkFilesystem(t *testing.T) {
	for _, c := range []struct {
		fsType, source string
		want           bool
	}{
		{"ext4", "/dev/sda1", false}, {"xfs", "/dev/mapper/a-b", false}, {"btrfs", "/dev/sda1", false}, {"zfs", "tank/pools", false}, {"tmpfs", "a:b", false},
		{"nfs", "files:/a", true}, {"nfs4", "[fe80::1]:/a", true}, {"cifs", "//files/a", true}, {"smb3", "//files/a", true}, {"ceph", "1.2.3.4:6789:/", true},
		{"9p", "share", true}, {"virtiofs", "share", true}, {"vboxsf", "share", true}, {"glusterfs", "a:/b", true}, {"lustre", "a@tcp:/b", true}, {"ocfs2", "/dev/sdb", true},
		{"fuse.sshfs", "root@files:/a", true}, {"fuse.glusterfs", "files:/a", true}, {"fuse.ceph", "ceph-fuse", true}, {"fuse.ceph-fuse", "ceph-fuse", true},
		{"fuse.s3fs", "s3fs", true}, {"fuse.nfs", "x", true}, {"fuse.new", "files:/a", true}, {"fuse.new", "//files/a", true}, {"fuse.new", "s3://bucket", true}, {"fuse", "files:/a", true},
		{"fuse.mergerfs", "/mnt/a:/mnt/b", false}, {"fuse.mergerfs", "a", false}, {"fuse.bindfs", "/srv", false}, {"fuseblk", "/dev/sda1", false}, {"fuse", "x", false}, {"fuse.new", "", false},
	} {
		e, f := good()
		e.Filesystem, e.Device, f.Device = "", "", Device{}
		f.Mounts[1].FSType, f.Mounts[1].Source = c.fsType, c.source
		for _, change := range []func(){func() {}, func() { e.Exclusive = true }, func() { e.Exclusive, e.Node = false, "" }} {
			change()
			r, want := Check(e, f), c.want && !e.Exclusive && e.Node != ""
			if r.Open() == want || want && r.Findings[0].Reason != ReasonNetworkFilesystem {
				t.Errorf("%s of %q, exclusive %t, node %q: %+v", c.fsType, c.source, e.Exclusive, e.Node, r.Findings)
			}
		}
	}
}
