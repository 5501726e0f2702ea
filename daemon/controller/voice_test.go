package controller

import (
	"fmt"
	"testing"
	"time"
)

func TestVoice(t *testing.T) {
	v, now := newVoice(), time.Unix(1e9, 0)
	said, told := 0, 0
	say := func(namespace string) {
		allowed, tell := v.allow(namespace, now)
		if allowed {
			said++
		}
		if tell {
			told++
		}
	}
	for range 3 * voiceBurst {
		say("loud")
	}
	if said != voiceBurst || told != 1 {
		t.Errorf("%d said, %d times that some is not, want %d and once", said, told, voiceBurst)
	}
	if say("calm"); said != voiceBurst+1 {
		t.Error("another namespace was not heard")
	}
	now = now.Add(10 * time.Second)
	for range 50 {
		say("loud")
	}
	if said != voiceBurst+11 || told != 1 {
		t.Errorf("%d said after 10 s, told %d times, want 10 more", said, told)
	}
	now = now.Add(time.Hour)
	for i := range 3 * voiceSpaces {
		say(fmt.Sprint(i))
		now = now.Add(time.Second)
	}
	if len(v.spaces) > voiceSpaces {
		t.Errorf("%d namespaces are remembered", len(v.spaces))
	}
}
