package mountpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/ipc"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

// quotaRequest is a request about project quotas, in JSON: a datagram that begins with "{", as no
// path does. The descriptor that comes with it is an end of a pair of sockets, as with a path.
type quotaRequest struct {
	Call string `json:"call"` // callGet, callSet or callFrom
	Path string `json:"path"` // of the pool's directory, as the configuration has it
	// Major and Minor are the device of the filesystem that the client means: another one may be
	// mounted by now.
	Major uint32      `json:"major"`
	Minor uint32      `json:"minor"`
	ID    uint32      `json:"id"`
	Limit quota.Limit `json:"limit,omitzero"` // of callSet
}

const (
	callGet  = "get"
	callSet  = "set"
	callFrom = "from"
)

// quotaReply is the response. Errno is the kernel's error, 0 for none; Error one of the service's
// own.
type quotaReply struct {
	Errno unix.Errno    `json:"errno,omitempty"`
	Error string        `json:"error,omitempty"`
	Usage []quota.Usage `json:"usage,omitempty"`
}

// mostUsage is how many projects a response has: each takes up to 150 bytes, and the message 64
// KiB.
const mostUsage = 256

// QuotaPool is a pool whose projects may be asked for and limited.
type QuotaPool struct {
	Path        string // of its directory
	First, Last uint32 // the projects that may be limited
}

// quotaTask is a request and the end for its response.
type quotaTask struct {
	quotaRequest
	end int
}

// quotaQueue has the requests of one pool: they are done one after the other, by a goroutine that
// ends when there are no more, so that a filesystem that hangs holds up no other.
type quotaQueue struct {
	working bool
	tasks   []quotaTask
}

// isQuota reports whether a datagram is about quotas.
func isQuota(request []byte) bool { return bytes.HasPrefix(request, []byte("{")) }

// takeQuota has a request about quotas done, refuses it, or drops it. An error ends the service.
func (s *Server) takeQuota(request []byte, end int) error {
	task := quotaTask{end: end}
	if err := json.Unmarshal(request, &task.quotaRequest); err != nil {
		s.refuse("a malformed request was dropped")
		s.socket.Discard(end)
		return nil
	}
	unread := error(nil)
	if !s.permits(task.quotaRequest) && s.QuotaPools != nil {
		if unread = s.readQuotaPools(); errors.Is(unread, ErrStartAgain) {
			return unread
		}
	}
	if !s.permits(task.quotaRequest) {
		s.refuse("a request for quotas was refused that no configured pool has")
		s.replyQuota(end, quotaReply{Error: task.unknown(unread).Error()})
		return nil
	}
	s.enqueueQuota(task)
	return nil
}

// readQuotaPools reads which pools count. While the configuration has errors, those of the last
// valid one count as well as those that this process knew: the daemon may go on with either.
func (s *Server) readQuotaPools() error {
	pools, err := s.QuotaPools()
	if err == nil {
		s.quotaPools = nil
	}
	for _, p := range pools {
		if !slices.Contains(s.quotaPools, p) {
			s.quotaPools = append(s.quotaPools, p)
		}
	}
	return err
}

func (t quotaTask) unknown(unread error) error {
	if unread != nil {
		return notRead(unread)
	}
	return fmt.Errorf("%s has no configured pool at %q with quota = \"project\" and project %d", Service, t.Path, t.ID)
}

// permits reports whether a request is about a pool that was configured when the configuration was
// last read: it is read when a request would be refused, and its pools count until then.
func (s *Server) permits(r quotaRequest) bool {
	return slices.ContainsFunc(s.quotaPools, func(p QuotaPool) bool {
		return p.Path == r.Path && (r.Call != callSet || r.ID != 0 && p.First <= r.ID && r.ID <= p.Last)
	})
}

func (s *Server) enqueueQuota(task quotaTask) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.quotas[task.Path]
	if q == nil {
		q = &quotaQueue{}
		s.quotas[task.Path] = q
	}
	if len(q.tasks) >= mostWaiting {
		s.socket.Discard(task.end)
		return
	}
	q.tasks = append(q.tasks, task)
	if !q.working {
		q.working = true
		go s.workQuota(q)
	}
}

func (s *Server) workQuota(q *quotaQueue) {
	for {
		s.mu.Lock()
		if len(q.tasks) == 0 {
			q.working = false
			s.mu.Unlock()
			return
		}
		task := q.tasks[0]
		q.tasks = q.tasks[1:]
		s.mu.Unlock()
		s.replyQuota(task.end, task.do())
	}
}

// do makes the kernel's call on the filesystem that the client means: the pool's path is opened
// anew, without following a link, and must lie on that device.
func (t quotaTask) do() quotaReply {
	fd, err := openat.Open(unix.AT_FDCWD, t.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return failedQuota(err)
	}
	defer unix.Close(fd)
	major, minor, err := device(fd)
	if err != nil {
		return failedQuota(err)
	}
	if major != t.Major || minor != t.Minor {
		return quotaReply{Error: fmt.Sprintf("%s lies on device %d:%d, and not on %d:%d", t.Path, major, minor, t.Major, t.Minor)}
	}
	r := quotaReply{}
	switch t.Call {
	case callGet:
		var u quota.Usage
		u, err = quota.Get(fd, t.ID)
		r.Usage = []quota.Usage{u}
	case callSet:
		err = quota.Set(fd, t.ID, t.Limit)
	case callFrom:
		r.Usage, err = quota.From(fd, t.ID, mostUsage)
	default:
		return quotaReply{Error: fmt.Sprintf("unknown call %q", t.Call)}
	}
	if err != nil {
		return failedQuota(err)
	}
	return r
}

// device is a file's, as stat(2) has it.
func device(fd int) (major, minor uint32, err error) {
	var st unix.Stat_t
	err = openat.Retry(func() error { return unix.Fstat(fd, &st) })
	return unix.Major(st.Dev), unix.Minor(st.Dev), err
}

func failedQuota(err error) quotaReply {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return quotaReply{Errno: errno}
	}
	return quotaReply{Error: err.Error()}
}

// replyQuota sends the response and closes the end.
func (s *Server) replyQuota(end int, r quotaReply) {
	if message, err := json.Marshal(r); err == nil {
		_ = ipc.Send(end, message)
	}
	s.socket.Discard(end)
}

// Quotas makes the calls of package quota for one pool: by itself if it may, and else through the
// service.
type Quotas struct {
	Client
	Path   string        // of the pool's directory, as the configuration has it
	Within time.Duration // for a response
	slots  chan struct{} // held by requests: fewer than the service lets wait
}

// QuotasOf returns the calls for a pool at a path.
func QuotasOf(path string) *Quotas {
	const within = 10 * time.Second
	return &Quotas{Client: Client{Socket: Socket, Grace: 3 * time.Second}, Path: path, Within: within, slots: make(chan struct{}, mostWaiting/2)}
}

// Get returns what a project takes and may take. The pool's directory is open at root.
func (q *Quotas) Get(root int, id uint32) (quota.Usage, error) {
	u, err := quota.Get(root, id)
	if !errors.Is(err, unix.EPERM) {
		return u, err
	}
	r, err := q.request(root, quotaRequest{Call: callGet, ID: id})
	if err == nil && len(r.Usage) != 1 {
		err = errors.New("the reply has no usage")
	}
	if err != nil {
		return quota.Usage{ID: id}, err
	}
	return r.Usage[0], nil
}

// Set gives a project its limits.
func (q *Quotas) Set(root int, id uint32, l quota.Limit) error {
	err := quota.Set(root, id, l)
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	_, err = q.request(root, quotaRequest{Call: callSet, ID: id, Limit: l})
	return err
}

// From returns projects of which the filesystem knows something, in their order, from an id on;
// none at the end.
func (q *Quotas) From(root int, id uint32) ([]quota.Usage, error) {
	all, err := quota.From(root, id, mostUsage)
	if !errors.Is(err, unix.EPERM) {
		return all, err
	}
	r, err := q.request(root, quotaRequest{Call: callFrom, ID: id})
	return r.Usage, err
}

// request asks until there is a response, which may be an error.
func (q *Quotas) request(root int, r quotaRequest) (quotaReply, error) {
	var err error
	r.Path = q.Path
	if r.Major, r.Minor, err = device(root); err != nil {
		return quotaReply{}, err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return quotaReply{}, err
	}
	q.slots <- struct{}{}
	defer func() { <-q.slots }()
	reply, err := q.repeat(text)
	switch {
	case err != nil:
		return quotaReply{}, fmt.Errorf("this process has no CAP_SYS_ADMIN, and %w", explain(err))
	case reply.Error != "":
		return quotaReply{}, errors.New(reply.Error)
	case reply.Errno != 0:
		return quotaReply{}, fmt.Errorf("%s: %w", Service, reply.Errno)
	}
	return reply, nil
}

func (q *Quotas) repeat(text []byte) (reply quotaReply, err error) {
	began := time.Now()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		var message []byte
		if message, err = q.exchange(string(text), began.Add(q.Within)); err == nil {
			return reply, json.Unmarshal(message, &reply)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) || !passing(err) || time.Since(began)+pause > q.Grace {
			return reply, err
		}
		time.Sleep(pause)
	}
}
