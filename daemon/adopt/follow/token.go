package follow

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The UID of a stream has the time at which its volume was not read yet, by the clock of the
// filesystem, for the stream that goes on from it; and of which boot that was, and by how much the
// host's clock was ahead of that boot then. It is a label's value, of at most 63 bytes:
//
//	seconds.nanoseconds-boot-milliseconds-random
//
// A change time that is older than the first is of what that stream has, as long as the clock was
// not set back since.
const streamUID = "%d.%09d-%8s-%d-%s"

// ErrBase: a stream cannot go on from the one that was named.
var ErrBase = errors.New("no stream can go on from that one")

// bootID has another text in each boot (proc_sys_kernel(5)).
const bootID = "/proc/sys/kernel/random/boot_id"

// Part names a stream that was cut off behind the file of an inode; of one that came whole there is
// none.
func Part(stream string, inode uint64) string { return fmt.Sprintf("%s@%d", stream, inode) }

// WholeOf is the stream that a part is of, and the inode, 0 if it came whole.
func WholeOf(part string) (stream string, inode uint64, err error) {
	stream, text, is := strings.Cut(part, "@")
	if is {
		if inode, err = strconv.ParseUint(text, 10, 64); err != nil || inode == 0 {
			return "", 0, fmt.Errorf("%.100q is no stream's name", part)
		}
	}
	return stream, inode, nil
}

// NewStream is the UID of a stream that begins at this time.
func NewStream(since unix.Timespec) (string, error) {
	boot, ahead, err := clockNow()
	return fmt.Sprintf(streamUID, since.Sec, since.Nsec, boot, ahead, rand.Text()[:16]), err
}

// clockNow is which boot this is, and by how many milliseconds the host's clock is ahead of it.
func clockNow() (boot string, ahead int64, err error) {
	text, err := os.ReadFile(bootID)
	var up unix.Timespec
	if err == nil {
		err = unix.ClockGettime(unix.CLOCK_BOOTTIME, &up)
	}
	if err == nil && len(text) < 8 {
		err = errors.New("the kernel has no boot_id")
	}
	if err != nil {
		return "", 0, fmt.Errorf("asking for the boot: %w", err)
	}
	return string(text[:8]), time.Now().UnixMilli() - up.Nano()/int64(time.Millisecond), nil
}

// SinceOf is the time of a stream of this node's volumes. It is an error if that says nothing any
// more: the node was restarted since, and its clock may have been another one before, or the clock
// was set back.
func SinceOf(stream string) (since unix.Timespec, err error) {
	boot, ahead, err := clockNow()
	if err != nil {
		return since, err
	}
	var of, random string
	var was int64
	parts := strings.Split(stream, "-")
	if len(parts) == 4 {
		_, err = fmt.Sscanf(strings.Join(parts[:3], " "), "%d.%d %s %d",
			&since.Sec, &since.Nsec, &of, &was)
		random = parts[3]
	}
	again := fmt.Sprintf(streamUID, since.Sec, since.Nsec, of, was, random)
	if err != nil || random == "" || stream != again {
		return since, fmt.Errorf("%.100q is no stream's name", stream)
	}
	// what steers a clock slows it down by less than a thousandth (adjtimex(2))
	slower := time.Since(time.Unix(since.Unix()))/1000 + time.Second
	switch {
	case of != boot:
		return since, fmt.Errorf("%w: this node was restarted since", ErrBase)
	case ahead < was-slower.Milliseconds():
		return since, fmt.Errorf("%w: this node's clock was set back since", ErrBase)
	}
	return since, nil
}

// Most is how many entries and bytes of data may come. A volume that is in use can become larger.
func (h Head) Most() (entries uint64, bytes int64) {
	if h.Live {
		return h.Entries + h.Entries/8 + 1000, h.Bytes + h.Bytes/8 + 64<<20
	}
	return h.Entries, h.Bytes
}
