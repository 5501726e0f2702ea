package weather

import (
	"bufio"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
)

// soon is how long a watch lives at most before its fault.
const soon = 5 * time.Second

// watch passes events on until its fault. Faults of the response happen in the middle of it.
func (p *proxy) watch(w http.ResponseWriter, r *http.Request, f fault) {
	changed, silent := p.faults.signals()
	response, err := p.ask(r, nil)
	if err != nil {
		p.away(r)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Type"), runtime.ContentTypeProtobuf) {
		pass(w, r, response, false)
		return
	}
	copyHeader(w, response)
	s := &stream{w: w, flush: http.NewResponseController(w).Flush, frames: frames(r, response.Body)}
	_ = s.flush()
	ends := p.endOf(f)
	for {
		select {
		case <-r.Context().Done():
			return
		case frame, open := <-s.frames:
			if !open {
				return
			}
			s.event(frame, f == twice)
		case <-ends:
			s.end(r, f)
		case <-changed:
			if changed, _ = p.faults.signals(); p.faults.dark() {
				cut(r)
			}
			f = p.faults.again()
			ends = p.endOf(f)
		case <-silent:
			p.faults.note(silenced)
			s.silence(r)
			return
		}
	}
}

// endOf is the time of a fault that ends a watch, nil for others.
func (p *proxy) endOf(f fault) <-chan time.Time {
	if f == cutAfter || f == half || f.refusal() {
		return time.After(p.faults.within(soon))
	}
	return nil
}

// stream is the response to a watch: frames of four bytes with the length and then the event
// (apimachinery, pkg/runtime/serializer/protobuf, LengthDelimitedFramer).
type stream struct {
	w      io.Writer
	flush  func() error
	frames <-chan []byte
}

func (s *stream) event(frame []byte, twice bool) {
	_, _ = s.w.Write(frame)
	if twice {
		_, _ = s.w.Write(frame)
	}
	_ = s.flush()
}

// end ends a watch by its fault.
func (s *stream) end(r *http.Request, f fault) {
	switch f {
	case half:
		// The next event, or the beginning of one that never comes.
		frame := []byte{0, 0, 1, 0, 'k', '8'}
		select {
		case next, open := <-s.frames:
			if open {
				frame = next[:len(next)/2]
			}
		case <-time.After(time.Second):
		}
		s.event(frame, false)
	case cutAfter:
		cut(r)
	default:
		if frame, err := errorEvent(f); err == nil {
			s.event(frame, false)
		}
	}
	panic(http.ErrAbortHandler)
}

// silence keeps the watch open and delivers nothing, until the client ends it.
func (s *stream) silence(r *http.Request) {
	frames := s.frames
	for {
		select {
		case <-r.Context().Done():
			return
		case _, open := <-frames:
			if !open {
				frames = nil // the server ended it; the client does not learn that
			}
		}
	}
}

// frames reads whole events. The channel is closed with the body.
func frames(r *http.Request, body io.Reader) <-chan []byte {
	out, in := make(chan []byte), bufio.NewReader(body)
	go func() {
		defer close(out)
		for {
			frame := make([]byte, 4)
			if _, err := io.ReadFull(in, frame); err != nil {
				return
			}
			frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
			if _, err := io.ReadFull(in, frame[4:]); err != nil {
				return
			}
			select {
			case out <- frame:
			case <-r.Context().Done():
				return
			}
		}
	}()
	return out
}

// errorEvent is an event of type ERROR with a made-up status.
func errorEvent(f fault) ([]byte, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	status, err := runtime.Encode(protobuf.NewSerializer(scheme, scheme), f.status())
	if err != nil {
		return nil, err
	}
	event := &metav1.WatchEvent{Type: string(watch.Error), Object: runtime.RawExtension{Raw: status}}
	body, err := event.Marshal()
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...), nil
}
