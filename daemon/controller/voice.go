package controller

import (
	"sync"
	"time"
)

// voice bounds how much is said about the claims of one namespace: who may create claims and change them as often
// as it likes could fill the log of every node, and the cluster with events. What is left out is said later, when
// the claim is looked at again.
type voice struct {
	mu     *sync.Mutex
	spaces map[string]*allowance
}

// allowance is what may still be said of a namespace.
type allowance struct {
	left float64
	at   time.Time // when that was so
	told time.Time // when it was said last that something was left out
}

const (
	// voiceBurst is more than the claims that one namespace usually has waiting.
	voiceBurst = 1000
	// voiceRate is in warnings a second: 400 claims that wait repeat theirs within 15 minutes.
	voiceRate = 1.0
	// voiceSpaces is how many namespaces are remembered before those that said little are forgotten.
	voiceSpaces = 1000
	// sayLater is when a claim is looked at again of which something was left out.
	sayLater = time.Minute
)

func newVoice() voice { return voice{&sync.Mutex{}, map[string]*allowance{}} }

// allow reports whether a warning about an object of a namespace may be said now. If not, tell is true once a
// minute.
func (v voice) allow(namespace string, now time.Time) (allowed, tell bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	a := v.spaces[namespace]
	if a == nil {
		v.forget(now)
		a = &allowance{left: voiceBurst, at: now}
		v.spaces[namespace] = a
	}
	a.left, a.at = a.now(now), now
	if a.left >= 1 {
		a.left--
		return true, false
	}
	if tell = now.Sub(a.told) >= sayLater; tell {
		a.told = now
	}
	return false, tell
}

func (a *allowance) now(now time.Time) float64 {
	return min(voiceBurst, a.left+voiceRate*now.Sub(a.at).Seconds())
}

// forget drops the namespaces whose allowance is whole again, if there are many.
func (v voice) forget(now time.Time) {
	if len(v.spaces) < voiceSpaces {
		return
	}
	for namespace, a := range v.spaces {
		if a.now(now) == voiceBurst {
			delete(v.spaces, namespace)
		}
	}
}

// maySay is allow, with its word in the log.
func (c *Controller) maySay(namespace string) bool {
	allowed, tell := c.voice.allow(namespace, time.Now())
	if tell {
		c.Log.Warn("there is too much to say about claims of one namespace: some of it is said later", "namespace", namespace)
	}
	return allowed
}
