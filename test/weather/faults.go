package weather

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// kind is what a request is to a fault.
type kind string

const (
	reading  kind = "read" // one object, or a list
	writing  kind = "write"
	watching kind = "watch"
)

func kindOf(r *http.Request) kind {
	switch {
	case r.Method != http.MethodGet:
		return writing
	case r.URL.Query().Has("watch"):
		return watching
	default:
		return reading
	}
}

// fault is what can happen to a request, by the name that the report gives it.
type fault string

const (
	none        fault = ""
	cutBefore   fault = "cut"           // the connection, with all that is on it, before the server hears of it
	cutAfter    fault = "response lost" // the same after the server did it
	delayed     fault = "delayed"
	twice       fault = "sent twice" // the second response is passed on; an event of a watch comes twice
	conflict    fault = "409"
	gone        fault = "410" // inside a watch: as an event
	tooMany     fault = "429"
	internal    fault = "500"
	unavailable fault = "503"
	noServer    fault = "404"          // of a proxy that knows no server, not about an object
	half        fault = "half written" // a response, or an event of a watch
	silenced    fault = "silenced"     // a watch that delivers nothing more and stays open
	away        fault = "server away"  // nothing was done to it: the API server did not respond
)

// madeUp are the responses that are made up. Each is given with equal chance before the server has
// heard of the request and after it has done it.
var madeUp = map[fault]metav1.Status{
	conflict:    {Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: "the object has been modified; please apply your changes to the latest version and try again"},
	gone:        {Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "The resourceVersion for the provided watch is too old."},
	tooMany:     {Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: "too many requests", Details: &metav1.StatusDetails{RetryAfterSeconds: 1}},
	internal:    {Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: "etcdserver: request timed out"},
	noServer:    {Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "404 page not found"},
	unavailable: {Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: "apiserver is shutting down"},
}

func (f fault) refusal() bool { _, made := madeUp[f]; return made }

// status is the made-up response as an object.
func (f fault) status() *metav1.Status {
	s := madeUp[f]
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	s.Status = metav1.StatusFailure
	return &s
}

// refuse responds in the server's place, in JSON, as the API server itself does where it has not
// yet looked at what the client accepts.
func refuse(w http.ResponseWriter, r *http.Request, f fault) {
	status := f.status()
	body, err := json.Marshal(status)
	if err != nil {
		cut(r)
	}
	w.Header().Set("Content-Type", "application/json")
	if status.Details != nil {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(body)
}

// faultRates are how likely each fault is for each kind of request.
type faultRates struct {
	odds map[kind]map[fault]int // in per mille
	deaf bool                   // the server hears of nothing that is refused
	dark bool                   // watches that are under way end
}

// of makes the same faults equally likely.
func of(perMille int, faults ...fault) map[fault]int {
	all := map[fault]int{}
	for _, f := range faults {
		all[f] = perMille
	}
	return all
}

// The rates of the phases. In misery every third write, every fourth read and most watches go
// wrong.
var (
	fair   = faultRates{}
	misery = faultRates{odds: map[kind]map[fault]int{
		reading:  of(25, cutBefore, cutAfter, delayed, twice, gone, noServer, tooMany, internal, unavailable, half),
		writing:  of(35, cutBefore, cutAfter, delayed, twice, conflict, noServer, tooMany, internal, unavailable, half),
		watching: of(90, cutBefore, cutAfter, delayed, twice, gone, tooMany, internal, unavailable, half),
	}}
	// refusing lets nothing through but watches, so that work arrives that cannot be done. It cuts
	// nothing, because that would end the watches on the same connection. Few are told that they
	// are too many: client-go waits a second then, and a worker that waits cannot be seen to be too
	// eager.
	refusing = faultRates{deaf: true, odds: map[kind]map[fault]int{reading: refused, writing: refused}}
	refused  = rarely(tooMany, of(196, conflict, gone, noServer, internal, unavailable))
	// dark lets nothing through.
	dark    = faultRates{deaf: true, dark: true, odds: map[kind]map[fault]int{reading: nothing, writing: nothing, watching: nothing}}
	nothing = rarely(tooMany, of(196, cutBefore, conflict, gone, internal, unavailable))
)

// rarely adds a fault that is what remains of a thousand.
func rarely(f fault, all map[fault]int) map[fault]int {
	all[f] = 1000
	for other, odds := range all {
		if other != f {
			all[f] -= odds
		}
	}
	return all
}

// injector draws faults by the rates of the moment, and counts them. The seed decides the sequence
// of the draws; which request meets which draw is up to the processes.
type injector struct {
	mu      sync.Mutex
	random  *rand.Rand
	rates   faultRates
	changed chan struct{} // closed when the rates change
	silent  chan struct{} // closed when the watches that there are fall silent
	tally   tally
}

// tally is what was counted since the last reset.
type tally struct {
	requests map[kind]int
	faults   map[fault]int
	busiest  int // requests in the busiest second
	second   int64
	inSecond int
}

func newTally() tally { return tally{requests: map[kind]int{}, faults: map[fault]int{}} }

func (t tally) sum() (n int) {
	for _, one := range t.requests {
		n += one
	}
	return n
}

func newInjector(seed uint64) *injector {
	return &injector{
		random: rand.New(rand.NewPCG(seed, 1)), rates: fair, tally: newTally(),
		changed: make(chan struct{}), silent: make(chan struct{}),
	}
}

// set changes the rates, also for watches that are under way.
func (s *injector) set(rates faultRates) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rates = rates
	close(s.changed)
	s.changed = make(chan struct{})
}

// silence silences every watch that there is, for good. Those that begin later are not.
func (s *injector) silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.silent)
	s.silent = make(chan struct{})
}

// signals are closed when the rates change, and when watches fall silent.
func (s *injector) signals() (changed, silent <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed, s.silent
}

// next counts a request and draws what happens to it.
func (s *injector) next(k kind) fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(k)
	return s.draw(k)
}

// again draws for a watch that is under way when the rates change.
func (s *injector) again() fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draw(watching)
}

func (s *injector) draw(k kind) fault {
	draw, odds := s.random.IntN(1000), s.rates.odds[k]
	for _, f := range slices.Sorted(maps.Keys(odds)) {
		if draw -= odds[f]; draw < 0 {
			s.tally.faults[f]++
			return f
		}
	}
	return none
}

func (s *injector) count(k kind) {
	s.tally.requests[k]++
	if now := time.Now().Unix(); now != s.tally.second {
		s.tally.second, s.tally.inSecond = now, 0
	}
	s.tally.inSecond++
	s.tally.busiest = max(s.tally.busiest, s.tally.inSecond)
}

// note counts a fault that was not drawn.
func (s *injector) note(f fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.faults[f]++
}

// reset returns what was counted and begins anew.
func (s *injector) reset() tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.tally
	s.tally = newTally()
	return was
}

// saw reports whether each of these faults happened since the last reset.
func (s *injector) saw(all []fault) func() bool {
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !slices.ContainsFunc(all, func(f fault) bool { return s.tally.faults[f] == 0 })
	}
}

// beforeServer draws whether a request is refused before the server has it.
func (s *injector) beforeServer() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rates.deaf || s.random.IntN(2) == 0
}

// dark reports whether watches end.
func (s *injector) dark() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rates.dark
}

// within is a random time below the limit.
func (s *injector) within(limit time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.random.Int64N(int64(limit)))
}

// longest is how long a request is delayed at most.
const longest = 2 * time.Second

// delay waits for a random time, up to longest.
func (s *injector) delay(ctx context.Context) { harness.Pass(ctx, s.within(longest)) }
