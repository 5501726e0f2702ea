// Package begun remembers what this process began and has not ended, and since when: steps whose
// effect elsewhere (in the API, on the disk) does not tell who made it.
//
// It keeps nothing beyond the process. What has to survive it is in a record or in the API.
package begun

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Set is what was begun, by a key that the caller chooses. The zero value is ready for use, and all
// methods may be called at the same time.
type Set struct {
	mu    sync.Mutex
	times map[string]time.Time
	notes map[string]string
}

// Begin notes the begin, and reports whether it was not begun before.
func (s *Set) Begin(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.times[key]; known {
		return false
	}
	if s.times == nil {
		s.times = map[string]time.Time{}
	}
	s.times[key] = time.Now()
	return true
}

// Resume notes that it was begun so long ago, in place of what is known of it.
func (s *Set) Resume(key string, ago time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times == nil {
		s.times = map[string]time.Time{}
	}
	s.times[key] = time.Now().Add(-ago)
}

// Has reports whether it was begun and has not ended.
func (s *Set) Has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.times[key]
	return known
}

// Since returns how long ago it was begun, 0 if it was not.
func (s *Set) Since(key string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, known := s.times[key]; known {
		return time.Since(at)
	}
	return 0
}

// Note keeps a word with what was begun, in place of the one before, until it ends.
func (s *Set) Note(key, word string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.times[key]; !known {
		return
	}
	if s.notes == nil {
		s.notes = map[string]string{}
	}
	s.notes[key] = word
}

// Noted returns that word, "" if there is none.
func (s *Set) Noted(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notes[key]
}

// Under returns what follows prefix in the keys that begin with it, sorted.
func (s *Set) Under(prefix string) (rest []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.times {
		if after, is := strings.CutPrefix(key, prefix); is {
			rest = append(rest, after)
		}
	}
	slices.Sort(rest)
	return rest
}

// End forgets it.
func (s *Set) End(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.times, key)
	delete(s.notes, key)
}
