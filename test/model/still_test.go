package main

// still reports whether the real world is as it was seen: objects and files are read one after the other, and what changed in between
// is in some of them and not in others.
func (st *stage) still(last, seen state) bool {
	again, err := st.seen(last)
	st.Must(err)
	return again.api == seen.api && again.disks == seen.disks
}
