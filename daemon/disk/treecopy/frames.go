package treecopy

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A stream is chunks: four bytes of length, that many bytes, and the SHA-256 of the chunk before's
// and of these bytes. So the last one, which is empty, has the sum of all that is before it. No
// byte is used that was not compared. Both ends hold one chunk.

// chunkMax is the longest chunk, in bytes.
const chunkMax = 1 << 20

// Errors of a stream that was read, wrapped.
var (
	// ErrCutOff: the stream ends before its end.
	ErrCutOff = errors.New("the stream was cut off")
	// ErrStream: the stream is damaged, or says what no volume has.
	ErrStream = errors.New("the stream is damaged")
)

// Encoder writes a stream.
type Encoder struct {
	to  io.Writer
	sum [sha256.Size]byte
	buf []byte
}

// NewEncoder returns an encoder that writes to w.
func NewEncoder(w io.Writer) *Encoder { return &Encoder{to: w} }

// Write writes the chunks that became full.
func (e *Encoder) Write(p []byte) (n int, err error) {
	for n = len(p); len(p) > 0; {
		if e.buf == nil {
			e.buf = make([]byte, 0, chunkMax)
		}
		some := p[:min(len(p), chunkMax-len(e.buf))]
		e.buf, p = append(e.buf, some...), p[len(some):]
		if len(e.buf) == chunkMax {
			if err := e.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (e *Encoder) flush() error {
	e.sum = chained(e.sum, e.buf)
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(e.buf)))
	for _, part := range [][]byte{length[:], e.buf, e.sum[:]} {
		if _, err := e.to.Write(part); err != nil {
			return err
		}
	}
	e.buf = e.buf[:0]
	return nil
}

// End writes what is left, and the end. Without it the stream is refused.
func (e *Encoder) End() error {
	if len(e.buf) > 0 {
		if err := e.flush(); err != nil {
			return err
		}
	}
	return e.flush()
}

// Decoder reads a stream.
type Decoder struct {
	from  io.Reader
	sum   [sha256.Size]byte
	buf   []byte
	left  []byte // of the chunk that is read
	ended bool
}

// NewDecoder returns a decoder that reads from r, and nothing behind the end.
func NewDecoder(r io.Reader) *Decoder { return &Decoder{from: r} }

// Read returns io.EOF behind the last byte of a stream that is whole.
func (d *Decoder) Read(p []byte) (int, error) {
	for len(d.left) == 0 {
		if d.ended {
			return 0, io.EOF
		}
		if err := d.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, d.left)
	d.left = d.left[n:]
	return n, nil
}

func (d *Decoder) next() error {
	var length [4]byte
	if err := d.fill(length[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(length[:])
	if size > chunkMax {
		return fmt.Errorf("%w: a chunk of %d bytes", ErrStream, size)
	}
	if d.buf == nil {
		d.buf = make([]byte, chunkMax)
	}
	var sum [sha256.Size]byte
	for _, part := range [][]byte{d.buf[:size], sum[:]} {
		if err := d.fill(part); err != nil {
			return err
		}
	}
	if d.sum = chained(d.sum, d.buf[:size]); d.sum != sum {
		return fmt.Errorf("%w: a checksum is wrong", ErrStream)
	}
	d.left, d.ended = d.buf[:size], size == 0
	return nil
}

// fill reads that many bytes.
func (d *Decoder) fill(p []byte) error {
	_, err := io.ReadFull(d.from, p)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrCutOff
	}
	return err
}

func chained(before [sha256.Size]byte, chunk []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	h.Write(before[:])
	h.Write(chunk)
	h.Sum(sum[:0])
	return sum
}
