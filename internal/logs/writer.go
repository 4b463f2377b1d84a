package logs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Defaults of Config.
const (
	DefaultSegmentSize = 10 * cluster.MiB
	DefaultSegments    = 3
	// MaxLine is the longest text of a line; a longer one is written in parts.
	MaxLine = 16 << 10
)

// retryInterval is how long a Writer waits after it could not open a file.
const retryInterval = time.Second

// Config configures a Writer.
type Config struct {
	// Dir is the log's folder. It is created if it is missing.
	Dir string
	// SegmentSize is the size of a full segment, by default DefaultSegmentSize.
	SegmentSize cluster.Bytes
	// Mask, unless nil, returns the text to store for a line. It is called for one line at a time, and for each part of
	// a line that is longer than MaxLine.
	Mask func(text []byte) []byte
	// Segments is how many segments are kept, the growing one included; by default DefaultSegments, at least 2.
	Segments int
}

// Writer appends the output of one program to its log. A folder should have one Writer at a time. Lines of a second
// Writer are stored, but their numbers may be wrong. Its methods may be called concurrently.
//
// A Writer drops and counts lines that it cannot write, for example because the disk is full. It writes their number
// before the next line. A Writer returns no error, because the program must not wait for its log.
type Writer struct {
	cfg     Config
	mu      sync.Mutex
	file    *os.File
	size    int64 // of file, up to the end of its last complete line
	next    int64 // number of the next line
	lost    int64 // lines that the log does not count yet
	dropped int64 // all lost lines of this Writer
	retry   time.Time
	buf     []byte
	streams []*stream
}

// NewWriter returns a Writer for the log in cfg.Dir, which may hold lines of an earlier Writer. It touches no file
// before the first line.
func NewWriter(cfg Config) *Writer {
	if cfg.SegmentSize <= 0 {
		cfg.SegmentSize = DefaultSegmentSize
	}
	if cfg.Segments == 0 {
		cfg.Segments = DefaultSegments
	}
	cfg.Segments = max(cfg.Segments, 2)
	return &Writer{cfg: cfg}
}

// Dropped returns how many lines this Writer could not write.
func (w *Writer) Dropped() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

// Stream returns a writer for the program's output s. It accepts all bytes and returns no error. It buffers an
// unfinished line, up to MaxLine bytes, until its end arrives or Close is called.
func (w *Writer) Stream(s Stream) io.Writer {
	st := &stream{writer: w, name: s}
	w.mu.Lock()
	w.streams = append(w.streams, st)
	w.mu.Unlock()
	return st
}

// Close writes the lines that the streams kept back and closes the file. A later write opens it again.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, st := range w.streams {
		if len(st.rest) > 0 {
			w.add(Line{Time: time.Now(), Stream: st.name, Text: w.masked(st.rest), Partial: true})
			st.rest = nil
		}
	}
	w.flush()
	if w.lost > 0 && w.file != nil {
		w.write(nil, 0)
	}
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	if err != nil {
		return fmt.Errorf("close log: %w", err)
	}
	return nil
}

// stream splits one output into lines.
type stream struct {
	writer *Writer
	name   Stream
	rest   []byte // of a line without its end
}

// Write implements io.Writer; it never fails.
func (st *stream) Write(p []byte) (int, error) {
	w := st.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	n, now := len(p), time.Now()
	for len(p) > 0 {
		text, after, whole := bytes.Cut(p, []byte{'\n'})
		if room := MaxLine - len(st.rest); len(text) > room {
			text, after, whole = p[:room], p[room:], false
		}
		p = after
		st.rest = append(st.rest, text...)
		if !whole && len(st.rest) < MaxLine {
			break
		}
		w.add(Line{Time: now, Stream: st.name, Text: w.masked(st.rest), Partial: !whole})
		st.rest = st.rest[:0]
	}
	w.flush()
	return n, nil
}

// masked returns the text to store for a line.
func (w *Writer) masked(text []byte) string {
	if w.cfg.Mask != nil {
		text = w.cfg.Mask(text)
		text = text[:min(len(text), MaxLine)]
	}
	return string(text)
}

// add appends a line to the buffer, which flush writes.
func (w *Writer) add(l Line) {
	before := len(w.buf)
	w.buf = Append(w.buf, l)
	if w.size+int64(len(w.buf)) <= int64(w.cfg.SegmentSize) || before == 0 {
		return
	}
	line := bytes.Clone(w.buf[before:])
	w.buf = w.buf[:before]
	w.flush()
	w.rotate()
	w.buf = append(w.buf, line...)
}

// flush writes the buffer. Lines that cannot be written count as lost.
func (w *Writer) flush() {
	lines := int64(bytes.Count(w.buf, []byte{'\n'}))
	if lines == 0 {
		return
	}
	w.write(w.buf, lines)
	w.buf = w.buf[:0]
	if cap(w.buf) > 1<<18 {
		w.buf = nil
	}
}

func (w *Writer) write(b []byte, lines int64) {
	if !w.open() {
		w.drop(lines)
		return
	}
	if w.size > 0 && w.size+int64(len(b)) > int64(w.cfg.SegmentSize) {
		w.rotate()
	}
	if w.file == nil {
		w.drop(lines)
		return
	}
	if w.lost > 0 {
		b = append(Append(nil, Line{Time: time.Now(), Stream: Stderr, Lost: w.lost}), b...)
	}
	n, err := w.file.Write(b)
	if err != nil {
		if info, statErr := w.file.Stat(); statErr == nil && n > 0 {
			_ = w.file.Truncate(info.Size() - int64(n)) // removes a torn line from the middle of the file
		}
		w.drop(lines)
		return
	}
	w.size += int64(n)
	w.next += lines + w.lost
	w.lost = 0
}

func (w *Writer) drop(lines int64) {
	w.lost += lines
	w.dropped += lines
}

// open ensures that a file is open. It continues after an earlier Writer and cuts off a torn line.
func (w *Writer) open() bool {
	if w.file != nil {
		return true
	}
	if now := time.Now(); now.Before(w.retry) {
		return false
	}
	if err := w.reopen(); err != nil {
		w.file, w.retry = nil, time.Now().Add(retryInterval)
		return false
	}
	return true
}

func (w *Writer) reopen() error {
	if err := os.MkdirAll(w.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("make log folder: %w", err)
	}
	firsts, err := segments(w.cfg.Dir)
	if err != nil {
		return err
	}
	first := w.next
	if len(firsts) > 0 {
		first = firsts[len(firsts)-1]
	}
	f, err := os.OpenFile(segmentPath(w.cfg.Dir, first), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open log segment: %w", err)
	}
	lines, size := scan(f, 0, nil)
	if err := f.Truncate(size); err != nil {
		_ = f.Close()
		return fmt.Errorf("cut torn line: %w", err)
	}
	w.file, w.size, w.next = f, size, first+lines
	return nil
}

// rotate begins the next segment and deletes the oldest. After a failure the Writer may have no file.
func (w *Writer) rotate() {
	if !w.open() || w.size == 0 {
		return
	}
	f, err := os.OpenFile(segmentPath(w.cfg.Dir, w.next), os.O_RDWR|os.O_CREATE|os.O_APPEND|os.O_EXCL, 0o600)
	if os.IsExist(err) { // another Writer created it meanwhile
		_ = w.file.Close()
		w.file = nil
		w.open()
		return
	}
	if err != nil {
		// Without space for a new file the old one may still have some: it grows past its size, but not without limit.
		if w.size > 2*int64(w.cfg.SegmentSize) {
			_ = w.file.Close()
			w.file, w.retry = nil, time.Now().Add(retryInterval)
		}
		return
	}
	_ = w.file.Close()
	w.file, w.size = f, 0
	firsts, err := segments(w.cfg.Dir)
	if err != nil {
		return
	}
	for len(firsts) > w.cfg.Segments {
		_ = os.Remove(segmentPath(w.cfg.Dir, firsts[0]))
		firsts = firsts[1:]
	}
}
