package systemd

import (
	"crypto/sha256"
	"encoding/hex"
)

// reasonKey is the attribute that tells kinds of records apart.
const reasonKey = "reason"

// firstNames are the first names of reasons that were renamed since. A MESSAGE_ID is what filters
// are written with, so it stays.
var firstNames = map[string]string{
	"DeletedLate":           "CaughtUp",
	"ModeTooOpen":           "OpenToOthers",
	"PoolInUse":             "PoolHeld",
	"ProvisioningFailed":    "CreateFailed",
	"ProvisioningSucceeded": "Provisioned",
	"StorageMismatch":       "OtherStorage",
	"VolumeFailedDelete":    "DeleteFailed",
}

// MessageID is the MESSAGE_ID of records with a reason (systemd.journal-fields(7)), by which
// `journalctl --catalog` finds the entry in the packages' catalog. It is derived from the reason's
// first name, so that it is the same in each version and on each host, and has the form of a random
// UUID, as sd-id128(3) requires.
func MessageID(reason string) string {
	if first, renamed := firstNames[reason]; renamed {
		reason = first
	}
	sum := sha256.Sum256([]byte("hostpath-provisioner message " + reason))
	id := sum[:16]
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return hex.EncodeToString(id)
}
