package model

// still reports whether the real world is as it was seen: objects and files are read one after the
// other, and what changed in between is in some of them and not in others.
func (st *stage) still(last, seen state) bool {
	again, err := st.seen(last)
	st.Must(err)
	return again.api == seen.api && again.disks == seen.disks
}

// ends has the daemons end the work that they are in the middle of: a state settles after it.
func (w *worker) ends(s *state) {
	for node := range s.daemons {
		for s.daemons[node].task != 0 {
			w.step(s, node)
		}
	}
}
