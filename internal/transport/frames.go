package transport

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// MaxFrame bounds the bytes of one frame of an exec stream.
const MaxFrame = 64 << 10

// ErrFrame reports input that is not a frame of an exec stream.
var ErrFrame = errors.New("not a frame of an exec stream")

// frameHead is the size of a frame's head in bytes: one for the channel and four for the length.
const frameHead = 5

// FrameWriter writes the frames of one direction of an exec stream. Its methods may be called
// concurrently: frames never mix.
type FrameWriter struct {
	mu  sync.Mutex
	out io.Writer
	buf []byte
	err error // the first error of out, after which no frame can be whole
}

// NewFrameWriter returns a writer of frames to out.
func NewFrameWriter(out io.Writer) *FrameWriter { return &FrameWriter{out: out} }

// Channel returns a writer to the channel. Each write is one frame, or several if it is longer than MaxFrame. An empty
// write sends nothing; see CloseInput.
func (w *FrameWriter) Channel(channel byte) io.Writer { return channelWriter{w, channel} }

// CloseInput sends the empty stdin frame that ends the command's input.
func (w *FrameWriter) CloseInput() error { return w.frame(ChannelStdin, nil) }

// CloseOutput sends the empty stdout frame that ends one direction of a forwarded connection.
func (w *FrameWriter) CloseOutput() error { return w.frame(ChannelStdout, nil) }

// End sends the last frame of the stream.
func (w *FrameWriter) End(end ExecEnd) error {
	b, err := json.Marshal(end)
	if err != nil {
		return fmt.Errorf("encode the end of a command: %w", err)
	}
	return w.frame(ChannelExit, b)
}

// frame writes head and body in one write, so that a stream that flushes at each write
// sends whole frames.
func (w *FrameWriter) frame(channel byte, body []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	w.buf = append(w.buf[:0], channel)
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(len(body)))
	w.buf = append(w.buf, body...)
	_, w.err = w.out.Write(w.buf)
	return w.err
}

type channelWriter struct {
	w       *FrameWriter
	channel byte
}

// Write sends b as frames.
func (c channelWriter) Write(b []byte) (n int, err error) {
	for n < len(b) {
		part := b[n:min(len(b), n+MaxFrame)]
		if err := c.w.frame(c.channel, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// Frame is one frame of an exec stream.
type Frame struct {
	Channel byte
	Body    []byte
}

// End reads the body of a frame of ChannelExit.
func (f Frame) End() (end ExecEnd, err error) {
	if f.Channel != ChannelExit {
		return end, fmt.Errorf("%w: channel %d does not carry the end", ErrFrame, f.Channel)
	}
	if err := json.Unmarshal(f.Body, &end); err != nil {
		return end, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return end, nil
}

// FrameReader reads the frames of one direction of an exec stream. It is not for concurrent use.
type FrameReader struct {
	in  io.Reader
	buf []byte
}

// NewFrameReader returns a reader of frames from in.
func NewFrameReader(in io.Reader) *FrameReader { return &FrameReader{in: in} }

// Next returns the next frame, whose body is valid until the next call. At the end between two frames it returns
// io.EOF, in the middle of one io.ErrUnexpectedEOF. A frame of an unknown channel or longer than MaxFrame is ErrFrame,
// and the stream cannot be read further.
func (r *FrameReader) Next() (Frame, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return Frame{}, err
	}
	channel, length := head[0], binary.BigEndian.Uint32(head[1:])
	if channel > ChannelSignal {
		return Frame{}, fmt.Errorf("%w: channel %d", ErrFrame, channel)
	}
	if length > MaxFrame {
		return Frame{}, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrFrame, length, MaxFrame)
	}
	if cap(r.buf) < int(length) {
		r.buf = make([]byte, length)
	}
	body := r.buf[:length]
	if _, err := io.ReadFull(r.in, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return Frame{channel, body}, nil
}
