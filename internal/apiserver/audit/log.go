// Package audit keeps the audit log: a line for each write and each refusal, as JSON, in files that are rotated.
//
// A line is durable before the answer to its request begins. Lines that arrive together share one fsync, and an answer
// waits at most 100 ms for it. Refusals do not wait, so failed tries cannot load the disk. A server that dies between
// the commit and the line leaves a write without a line, but its client got no answer. The event of the write names its
// author.
//
// A full disk stops no write. Further lines wait in memory up to a bound; lines beyond it are lost and counted.
//
// The log is not in the store: refused requests would become writes, and the log would be lost with the store. Writes
// are not refused when their line cannot be written, because a full log disk would then be an outage. A later fsync
// would be cheaper, but a power cut could lose the line of an answered write. Lines are not signed; a copy on another
// machine protects better.
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
	maxFileBytes   = 64 << 20 // maximum size of a file
	auditFiles     = 10       // older files that are kept
	maxQueuedLines = 10_000   // lines that may wait for the disk
	retryPause     = time.Second
)

// Config is what Open needs.
type Config struct {
	// Path of the file. Older files are <path>.1, the newest of them, <path>.2 and so on.
	Path string
	// MaxBytes is the size at which the next file begins, and Keep the number of older files; default 64 MiB and 10.
	MaxBytes int64
	Keep     int
	// Registry takes the metrics; nil for none.
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// Log is a Sink that writes JSON lines to a file of mode 0600. Lines that arrive while the disk is busy are written and
// synced together. If the disk fails, up to 10,000 lines wait in memory and requests continue. Further lines are lost.
// The log counts them in a line of its own once the disk works again.
type Log struct {
	log  *slog.Logger
	lost prometheus.Counter

	mu     sync.Mutex
	queue  []entry
	gone   uint64 // lines lost since the last line that was kept
	fault  error  // why the last write failed; nil if it did not
	since  time.Time
	ended  bool // Run has returned: Put writes to the file itself
	wake   chan struct{}
	writer logFile // used by Run, and by Put after Run
}

type entry struct {
	text []byte
	kept chan struct{}
}

// Open opens an audit log and creates the file if it is missing. Run writes to it.
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
		log: cfg.Log, wake: make(chan struct{}, 1),
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

// Put implements Sink.
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
		close(kept) // the disk fails: no request waits for the line
		l.queue[len(l.queue)-1].kept = nil
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return kept
}

// Health implements Sink.
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

// Run writes lines until ctx ends, and then the remaining lines. Put itself writes later lines, so that no line of the
// last requests is lost. Run returns nil.
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
				continue // a failing disk is tried again at intervals only
			}
		case <-retry:
		}
		l.assemble()
		l.mu.Lock()
		batch := l.take()
		l.mu.Unlock()
		if len(batch.text) == 0 {
			continue // the previous batch held them
		}
		err := l.writer.append(batch.text)
		l.mu.Lock()
		l.settle(batch, err)
		l.mu.Unlock()
	}
}

// assemble yields the processor while new lines arrive. Requests of one commit finish together, so that one sync writes
// all of their lines.
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

// batch is a set of lines that one sync writes.
type batch struct {
	entries []entry
	text    []byte
	gone    uint64 // counted in the text
}

// take removes all lines from the queue. The caller holds the lock.
func (l *Log) take() batch {
	b := batch{entries: l.queue, gone: l.gone}
	l.queue, l.gone = nil, 0
	for _, e := range b.entries {
		b.text = append(b.text, e.text...)
	}
	if b.gone > 0 {
		// The lost lines arrived after all waiting ones.
		text, _ := json.Marshal(Line{Time: time.Now().UTC(), Lost: b.gone}) // numbers and texts only
		b.text = append(append(b.text, text...), '\n')
	}
	return b
}

// write writes a batch and records the result. The caller holds the lock.
func (l *Log) write(b batch) { l.settle(b, l.writer.append(b.text)) }

// settle records the result of a batch. After a failure the batch goes back to the front of the queue. The caller holds
// the lock.
func (l *Log) settle(b batch, err error) {
	if err != nil {
		if l.fault == nil {
			l.since = time.Now()
			l.log.Error("the audit log takes no lines; requests continue", "error", err)
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
	if len(l.queue) > 0 { // lines arrived during the failure or the write
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// logFile is the file that lines are appended to, with the older files beside it.
type logFile struct {
	path string
	most int64
	keep int

	file *os.File
	size int64 // of the durable part; a torn line may follow
}

// open opens the file for appending. If a crash tore the last line, open ends that line.
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

// append writes lines at the end and syncs the file. After an error the file holds none of them.
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
		// After a failed sync the state of the file's pages is unknown, so the file is opened again.
		err = errors.Join(err, a.file.Truncate(a.size), a.file.Close())
		a.file = nil
		return err
	}
	a.size += int64(len(text))
	return nil
}

// rotate renames each file to the next number, removes the oldest and begins a new file.
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

// Line is one line of the audit log: a request, its sender and its result. It holds no bodies and no secrets.
type Line struct {
	Time time.Time `json:"time"`
	// Who is "uid:<number>" on a unix socket, "token-file" for the server's own token, "token:<id>", or "node:<name>"
	// and "server:<id>" for certificates; empty for an unknown sender.
	Who string `json:"who,omitempty"`
	// Name is the name of a token, for people.
	Name string `json:"name,omitempty"`
	Role string `json:"role,omitempty"`
	// From is the address of the client, or "unix".
	From   string `json:"from"`
	Method string `json:"method"`
	Path   string `json:"path"`
	// Operation is the name of the operation in the API's description. Object is what the request is about, such as
	// "default/web".
	Operation string `json:"operation,omitempty"`
	Object    string `json:"object,omitempty"`
	// Status is the status of the answer. 401, 403 and 429 are refusals. 0 means that the connection broke before an
	// answer.
	Status int `json:"status"`
	// Revision of the object after the write, where it has one.
	Revision uint64 `json:"revision,omitempty"`
	// Accepted and Refused are the numbers of commands of a proposal, by the answer to it.
	Accepted int `json:"accepted,omitempty"`
	Refused  int `json:"refused,omitempty"`
	// Request is the id of the request; the answer carries it as X-Request-Id.
	Request string `json:"request"`
	// Lost, in a line of its own, counts the lost lines before it.
	Lost uint64 `json:"lost,omitempty"`
}

// Sink takes the lines of the audit log; a Log is one. Safe for concurrent use.
type Sink interface {
	// Put takes a line and returns immediately. It closes the channel once the line is durable, or if the disk fails.
	Put(Line) <-chan struct{}
	// Health returns nil, or a sentence that says since when lines are not written.
	Health() error
}
