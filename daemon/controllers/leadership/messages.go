package leadership

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// repaired is the message about a lease that was corrected.
func repaired(lease, wrong string) string {
	return fmt.Sprintf("lease %s is not as a daemon writes it, and is corrected: %s", lease, wrong)
}

// overwritten is the message of a holder whose lease has another holder before its time was over.
// now is the lease as it is, nil if it is gone.
func overwritten(lease string, now *Lease) string {
	is := "it was deleted"
	switch {
	case now == nil:
	case now.Holder == "":
		is = "it has no holder"
	default:
		is = fmt.Sprintf("its holder is %s in term %d", quoted(now.Holder), now.Term.Number)
	}
	return fmt.Sprintf("lease %s was overwritten while this node held it: %s; another program wrote it, or the cluster's data was restored; "+
		"this node stops work until it holds the lease again", lease, is)
}

// quoted is text from the API as a message has it: short, and quoted where it is not plain.
func quoted(text string) string {
	const most = 64
	plain := !strings.ContainsFunc(text, func(r rune) bool {
		return r > 'z' || !strings.ContainsRune("-_.", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	if len(text) > most {
		text = text[:most] + "..."
	}
	if plain {
		return text
	}
	return strconv.Quote(text)
}
