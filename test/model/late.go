package model

// late is a request that a daemon gave up and that the API server has not served yet. The response
// goes nowhere.
type late struct {
	at   uint32 // the place in the tree of what it asks for, 0 for none
	node uint8
}

// unwaited is what an order says behind a request that its daemon gives up before it is served.
const unwaited = ", and it is given up"

// givesUp has the API server keep a request that a daemon gives up.
func (w *worker) givesUp(s state, node int, at *place, visit func(move, state)) {
	if !at.asks.kind.writes() || s.late.at != 0 || !s.spend(lates) {
		return
	}
	s.late = late{at.id, uint8(node)}
	w.goOnWith(&s, node, at, response{fault: lost})
	visit(move{event: -1, node: node, op: at.asks, what: unwaited}, s)
}

// servedLate: the API server serves it, whatever became of its daemon.
func servedLate(w *worker, s *state, _ int) bool {
	was := s.late
	if was.at == 0 {
		return false
	}
	s.late = late{}
	w.serve(s, int(was.node), w.tree.place(was.at).asks)
	return true
}
