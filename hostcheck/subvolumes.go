package hostcheck

// noSubvolumes: the filesystem's type is known, and it need not be asked.
func noSubvolumes(v view) (bool, []any) {
	return v.placed && v.want.Subvolumes && v.pathOn.FSType != "btrfs", about(described(v.pathOn))
}
