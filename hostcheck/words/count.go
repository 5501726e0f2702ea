package words

import "fmt"

// Count writes a number of things: "1 volume", "3 volumes". what is a noun whose plural ends with
// an s.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
