package systemd

import (
	"regexp"
	"testing"
)

// What filters of users and the catalogs of other versions name never changes.
func TestMessageID(t *testing.T) {
	for reason, want := range map[string]string{"ProvisioningSucceeded": "39a35fb3fe7d4fa6939dda92fd83ebbd", "StartFailed": "015800ac227c48a284b33bcb9c0bdea4"} {
		if got := MessageID(reason); got != want {
			t.Errorf("%s: %s, want %s", reason, got, want)
		}
		if !regexp.MustCompile(`^[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}$`).MatchString(MessageID(reason)) {
			t.Errorf("%s: %s is no ID of sd-id128(3)", reason, MessageID(reason))
		}
	}
}
