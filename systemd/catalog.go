package systemd

import (
	"crypto/sha256"
	"encoding/hex"
)

// reasonKey is the attribute that tells kinds of records apart.
const reasonKey = "reason"

// MessageID is the MESSAGE_ID of records with a reason (systemd.journal-fields(7)), by which
// `journalctl --catalog` finds the entry in the packages' catalog. It is derived from the reason,
// so that it is the same in each version and on each host, and has the form of a random UUID, as
// sd-id128(3) requires.
func MessageID(reason string) string {
	sum := sha256.Sum256([]byte("hostpath-provisioner message " + reason))
	id := sum[:16]
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return hex.EncodeToString(id)
}
