package peers

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// A forwarded stream has frames both ways: one byte of kind, four bytes of length (big endian), and the body. HTTP/2
// does not let the answering side end one direction while the other continues.
const (
	frameOpen byte = iota + 1 // streamOpen, the asker's first frame
	frameData
	frameEnd  // this direction has ended
	frameFail // this direction broke; the body is a sentence
)

const (
	frameHead = 5
	maxFrame  = 64 << 10
)

// errBroken says that the connection ended before the stream did.
var errBroken = errors.New("the connection to the other server broke")

// frameWriter writes frames of one direction. Safe for concurrent use.
type frameWriter struct {
	mu    sync.Mutex
	out   io.Writer
	flush func() error
	buf   []byte
	ended bool
}

// Write sends b as data.
func (w *frameWriter) Write(b []byte) (n int, err error) {
	for n < len(b) {
		part := b[n:min(len(b), n+maxFrame)]
		if err := w.frame(frameData, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// end ends this direction, with an error unless err is nil.
func (w *frameWriter) end(err error) error {
	if err == nil {
		return w.frame(frameEnd, nil)
	}
	text := err.Error()
	return w.frame(frameFail, []byte(text[:min(len(text), maxWireError)]))
}

func (w *frameWriter) frame(kind byte, body []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return io.ErrClosedPipe
	}
	w.buf = append(w.buf[:0], kind)
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(len(body)))
	w.buf = append(w.buf, body...)
	w.ended = kind == frameEnd || kind == frameFail
	if _, err := w.out.Write(w.buf); err != nil {
		w.ended = true // no later frame can be whole
		return err
	}
	if w.flush == nil {
		return nil
	}
	return w.flush()
}

// cut makes later writes fail, and also a write that waits for a reader. The requesting server then sees an incomplete
// stream.
func (w *frameWriter) cut(asker deadlines) {
	if !w.mu.TryLock() {
		_ = asker.SetWriteDeadline(time.Now())
		w.mu.Lock()
	}
	defer w.mu.Unlock()
	w.ended = true
}

// frameReader reads the data of one direction. It must not be used concurrently.
type frameReader struct {
	in   io.Reader
	left int   // unread bytes of the present data frame
	err  error // the reason of its end
}

// Read returns data, io.EOF if the other side ended this direction, or the error that broke it.
func (r *frameReader) Read(b []byte) (int, error) {
	for r.left == 0 {
		if r.err != nil {
			return 0, r.err
		}
		kind, length, err := r.head()
		switch {
		case err != nil:
			r.err = err
		case kind == frameData:
			r.left = length
		case kind == frameEnd:
			r.err = io.EOF
		case kind == frameFail:
			r.err = r.failure(length)
		default:
			r.err = fmt.Errorf("frame of kind %d in the middle of a stream", kind)
		}
	}
	n, err := r.in.Read(b[:min(len(b), r.left)])
	r.left -= n
	if err != nil && r.left > 0 {
		r.err, r.left = asBroken(err), 0
		return n, r.err
	}
	return n, nil
}

func (r *frameReader) head() (kind byte, length int, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return 0, 0, asBroken(err)
	}
	n := binary.BigEndian.Uint32(head[1:])
	if most := uint32(maxFrame); n > most && (head[0] != frameOpen || n > maxOpen) {
		return 0, 0, fmt.Errorf("a frame of %d bytes, at most %d are allowed", n, most)
	}
	return head[0], int(n), nil
}

func (r *frameReader) failure(length int) error {
	text, err := io.ReadAll(io.LimitReader(r.in, int64(length)))
	if err != nil {
		return asBroken(err)
	}
	return errors.New(string(text))
}

// open reads the first frame.
func (r *frameReader) open() (o streamOpen, err error) {
	kind, length, err := r.head()
	if err != nil {
		return o, err
	}
	if kind != frameOpen {
		return o, fmt.Errorf("the stream begins with a frame of kind %d", kind)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(r.in, body); err != nil {
		return o, asBroken(err)
	}
	return o, json.Unmarshal(body, &o)
}

func asBroken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errBroken
	}
	return fmt.Errorf("%w: %w", errBroken, err)
}
