// Package audit keeps the audit log: a line for each write and each refusal, as JSON, in files that are rotated.
package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds of the audit log.
const (
	maxFileBytes   = 64 << 20 // of a file until the next is begun
	auditFiles     = 10       // that are kept besides the one that is written
	maxQueuedLines = 10_000   // lines that wait for the disk
	retryPause     = time.Second
)

// Config is what an audit log is made of.
type Config struct {
	// Path of the file; older ones stand beside it as <path>.1, the newest of them, and so on.
	Path string
	// MaxBytes is when a file is full, and Keep how many older ones are kept; default 64 MiB and 10.
	MaxBytes int64
	Keep     int
	// Registry takes the metrics; nil for none.
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// Log is an AuditSink that writes one JSON object a line into a file of mode 0600. Lines that come while the disk
// is busy are made durable together, and so are those of requests that are answered at the same moment. While the disk
// takes none, they wait in memory, up to 10,000; what comes then is lost, and counted in a line of its own once the
// disk takes lines again. Requests go on meanwhile.
type Log struct {
	cfg  Config
	log  *slog.Logger
	lost prometheus.Counter

	mu     sync.Mutex
	queue  []entry
	gone   uint64 // lines lost since the last line that was kept
	fault  error  // why the disk takes no lines; nil while it does
	since  time.Time
	ended  bool // Run is over: Put writes by itself
	wake   chan struct{}
	writer logFile // of Run, and after it of Put
}

type entry struct {
	text []byte
	kept chan struct{}
}

// Open opens an audit log, making the file where there is none. It writes with Run.
func Open(cfg Config) (*Log, error) {
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = maxFileBytes
	}
	if cfg.Keep == 0 {
		cfg.Keep = auditFiles
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	l := &Log{
		cfg: cfg, log: cfg.Log, wake: make(chan struct{}, 1),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "apiserver", Name: "audit_lost_lines_total",
			Help: "Lines of the audit log that could not be kept.",
		}),
		writer: logFile{path: cfg.Path, most: cfg.MaxBytes, keep: cfg.Keep},
	}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(l.lost)
	}
	if err := l.writer.open(); err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	return l, nil
}

// Put is part of AuditSink.
func (l *Log) Put(line Line) <-chan struct{} {
	kept := make(chan struct{})
	text, err := json.Marshal(line)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || len(l.queue) >= maxQueuedLines {
		l.gone++
		l.lost.Inc()
		close(kept)
		return kept
	}
	l.queue = append(l.queue, entry{append(text, '\n'), kept})
	if l.ended {
		l.write(l.take())
		return kept
	}
	if l.fault != nil {
		close(kept) // the line waits in memory, and no request waits for it
		l.queue[len(l.queue)-1].kept = nil
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return kept
}

// Health is part of AuditSink.
func (l *Log) Health() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.fault == nil:
		return nil
	case l.gone > 0:
		return fmt.Errorf("the audit log takes no lines since %s, %d are lost: %w", l.since.UTC().Format(time.RFC3339),
			l.gone, l.fault)
	}
	return fmt.Errorf("the audit log takes no lines since %s, %d wait in memory: %w",
		l.since.UTC().Format(time.RFC3339), len(l.queue), l.fault)
}

// Run writes lines until ctx ends, and then what is left. Lines that come later are written by Put itself, so that
// none is lost while the last requests end. It returns nil.
func (l *Log) Run(ctx context.Context) error {
	for {
		var retry <-chan time.Time
		if l.Health() != nil {
			retry = time.After(retryPause)
		}
		select {
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			l.ended = true
			l.write(l.take())
			return nil
		case <-l.wake:
			if retry != nil {
				continue // the disk is tried at intervals, not for every line
			}
		case <-retry:
		}
		l.assemble()
		l.mu.Lock()
		batch := l.take()
		l.mu.Unlock()
		if len(batch.text) == 0 {
			continue // they went with the ones before
		}
		err := l.writer.append(batch.text)
		l.mu.Lock()
		l.settle(batch, err)
		l.mu.Unlock()
	}
}

// assemble yields the processor while new lines come. Requests that one commit finished are answered together, so their
// lines go to the disk together.
func (l *Log) assemble() {
	for before := 0; ; {
		l.mu.Lock()
		n := len(l.queue)
		l.mu.Unlock()
		if n <= before {
			return
		}
		before = n
		runtime.Gosched()
	}
}

// batch is what is written at once.
type batch struct {
	entries []entry
	text    []byte
	gone    uint64 // counted in the text
}

// take empties the queue. The lock is held.
func (l *Log) take() batch {
	b := batch{entries: l.queue, gone: l.gone}
	l.queue, l.gone = nil, 0
	for _, e := range b.entries {
		b.text = append(b.text, e.text...)
	}
	if b.gone > 0 {
		// The lost ones came after all that waited.
		text, _ := json.Marshal(Line{Time: time.Now().UTC(), Lost: b.gone}) // numbers and texts only
		b.text = append(append(b.text, text...), '\n')
	}
	return b
}

// write writes a batch. The lock is held.
func (l *Log) write(b batch) { l.settle(b, l.writer.append(b.text)) }

// settle notes what became of a batch: what was not written waits again, before all that came since. The lock is held.
func (l *Log) settle(b batch, err error) {
	if err != nil {
		if l.fault == nil {
			l.since = time.Now()
			l.log.Error("the audit log takes no lines; requests go on", "error", err)
		}
		l.fault = err
		for i := range b.entries {
			if kept := b.entries[i].kept; kept != nil {
				close(kept)
				b.entries[i].kept = nil
			}
		}
		l.queue = append(b.entries, l.queue...)
		l.gone += b.gone
		for _, e := range l.queue[min(len(l.queue), maxQueuedLines):] {
			l.gone++
			l.lost.Inc()
			if e.kept != nil {
				close(e.kept)
			}
		}
		l.queue = l.queue[:min(len(l.queue), maxQueuedLines)]
		return
	}
	if l.fault != nil {
		l.log.Info("the audit log takes lines again", "lost", b.gone)
	}
	l.fault = nil
	for _, e := range b.entries {
		if e.kept != nil {
			close(e.kept)
		}
	}
	if len(l.queue) > 0 { // came while there was a fault, or meanwhile
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// logFile is the file that lines are appended to, with the older ones beside it.
type logFile struct {
	path string
	most int64
	keep int

	file *os.File
	size int64 // of what is durable; the rest is a torn line
}

// open opens the file for appending. A line that a crash tore is ended.
func (a *logFile) open() error {
	f, err := os.OpenFile(a.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	err = f.Chmod(0o600)
	var size int64
	if err == nil {
		size, err = f.Seek(0, io.SeekEnd)
	}
	if err == nil && size > 0 {
		var last [1]byte
		if _, err = f.ReadAt(last[:], size-1); err == nil && last[0] != '\n' {
			_, err = f.Write([]byte("\n"))
			size++
		}
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	a.file, a.size = f, size
	return nil
}

// append writes lines at the end and makes them durable. After an error nothing of them stands in the file.
func (a *logFile) append(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	if a.size > 0 && a.size+int64(len(text)) > a.most {
		if err := a.rotate(); err != nil {
			return err
		}
	}
	if a.file == nil {
		if err := a.open(); err != nil {
			return err
		}
	}
	_, err := a.file.Write(text)
	if err == nil {
		err = a.file.Sync()
	}
	if err != nil {
		// After a failed sync the state of the file's pages is not known, so it is opened anew.
		err = errors.Join(err, a.file.Truncate(a.size), a.file.Close())
		a.file = nil
		return err
	}
	a.size += int64(len(text))
	return nil
}

// rotate moves each file on by one number, the oldest away, and begins a new one.
func (a *logFile) rotate() error {
	if a.file != nil {
		if err := a.file.Close(); err != nil {
			return err
		}
		a.file = nil
	}
	name := func(n int) string {
		if n == 0 {
			return a.path
		}
		return a.path + "." + strconv.Itoa(n)
	}
	for n := a.keep - 1; n >= 0; n-- {
		if err := os.Rename(name(n), name(n+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	a.size = 0
	return a.open()
}

// Line is one line of the audit log: who asked for what, and what became of it. It holds no bodies and no secrets.
type Line struct {
	Time time.Time `json:"time"`
	// Who is "uid:<number>" on a unix socket, "token-file" for the server's own token, "token:<id>", or "node:<name>"
	// and "server:<id>" for certificates; empty for somebody who is not known.
	Who string `json:"who,omitempty"`
	// Name is what a token is called, for people.
	Name string `json:"name,omitempty"`
	Role string `json:"role,omitempty"`
	// From is the address of the other end, or "unix".
	From   string `json:"from"`
	Method string `json:"method"`
	Path   string `json:"path"`
	// Operation is the operation's name in the API's description, and Object what it was about, such as "default/web".
	Operation string `json:"operation,omitempty"`
	Object    string `json:"object,omitempty"`
	// Status is that of the answer; 401, 403 and 429 are refusals, and 0 is that there was none: the connection broke.
	Status int `json:"status"`
	// Revision of the object after the write, where it has one.
	Revision uint64 `json:"revision,omitempty"`
	// Request is the id of the request, which the answer carries as X-Request-Id.
	Request string `json:"request"`
	// Lost, in a line of its own, counts lines before it that could not be kept.
	Lost uint64 `json:"lost,omitempty"`
}

// Sink takes the lines of the audit log; *AuditLog is one. Safe for concurrent use.
type Sink interface {
	// Put takes a line at once and returns a channel that is closed when the line is durable, or is not going to be
	// soon.
	Put(Line) <-chan struct{}
	// Health returns nil, or a sentence that says since when lines are not kept.
	Health() error
}
