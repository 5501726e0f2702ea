package hostcheck

import (
	"slices"
	"strings"
)

// networked are the filesystems that several hosts can have mounted at once: from a server, from
// the host of a virtual machine, or from a disk that several hosts reach.
var networked = []string{
	"9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs", "gfs2", "glusterfs", "gpfs", "lustre", "mmfs", "ncp", "ncpfs",
	"nfs", "nfs3", "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs", "pvfs2", "smb2", "smb3", "smbfs", "sshfs", "vboxsf", "virtiofs", "vmhgfs", "wekafs",
}

// networkedFUSE are those of FUSE; the mount table shows them as "fuse.NAME".
var networkedFUSE = []string{
	"alluxio-fuse", "blobfuse", "blobfuse2", "ceph", "ceph-fuse", "curlftpfs", "cvmfs2", "davfs", "gcsfuse", "glusterfs", "goofys", "hdfs", "httpfs",
	"juicefs", "JuiceFS", "lizardfs", "mfs", "mfsmount", "moosefs", "mount-s3", "mountpoint-s3", "nfs", "ossfs", "quobyte", "rclone", "s3fs", "saunafs",
	"seaweedfs", "smbnetfs", "sshfs", "vmhgfs-fuse", "weed", "xtreemfs",
}

// onNetwork reports whether other hosts can have the same filesystem mounted. A FUSE filesystem
// that is not known by its name is told by a source that names a server.
func onNetwork(fsType, source string) bool {
	name, fuse := strings.CutPrefix(fsType, "fuse.")
	if !fuse {
		return slices.Contains(networked, fsType) || fsType == "fuse" && namesServer(source)
	}
	return slices.Contains(networkedFUSE, name) || slices.Contains(networked, name) || namesServer(source)
}

// namesServer knows "server:/export", "user@server:", "//server/share" and "scheme://server".
func namesServer(source string) bool {
	if strings.HasPrefix(source, "//") || strings.Contains(source, "://") {
		return true
	}
	server, _, found := strings.Cut(source, ":")
	return found && server != "" && !strings.Contains(server, "/")
}

// networkFilesystem: two nodes that both take the same directory for their own disk would each undo
// what the other makes.
func networkFilesystem(v view) (bool, []any) {
	bad := v.placed && v.want.Node != "" && !v.want.Exclusive && onNetwork(v.on.FSType, v.on.Source)
	return bad, about(described(v.on))
}

func otherNode(v view) (bool, []any) {
	m := v.facts.Marker.Marker
	return v.markerLooked() && v.want.Node != "" && m.Node != "" && m.Node != v.want.Node, about(v.want.Path, m.Node, v.want.Node)
}

func otherCluster(v view) (bool, []any) {
	m := v.facts.Marker.Marker
	bad := v.markerLooked() && v.want.Cluster != "" && m.Cluster != "" && m.Cluster != ClusterAny && m.Cluster != v.want.Cluster
	return bad, about(v.want.Path, m.Cluster, v.want.Cluster)
}
