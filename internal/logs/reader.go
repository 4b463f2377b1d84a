package logs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Pauses of a follower between two reads: minPollInterval while lines arrive, growing up to maxPollInterval otherwise.
const (
	minPollInterval = 10 * time.Millisecond
	maxPollInterval = 100 * time.Millisecond
)

// blockSize is how much of a segment is read in one call, in bytes.
const blockSize = 256 << 10

// Options select the lines of Read.
type Options struct {
	// Follow waits for later lines, until the context ends or Done is closed.
	Follow bool
	// Done, unless nil, is closed when no more lines will come: a follower then returns at the end of the log.
	Done <-chan struct{}
	// Tail, if positive, is how many of the newest matching lines come first. 0 means all lines; a negative number
	// means none, for use with Follow.
	Tail int
	// Since, unless zero, leaves out earlier lines.
	Since time.Time
	// Stream, unless empty, leaves out the other stream.
	Stream Stream
}

func (o *Options) matches(l Line) bool {
	return (o.Stream == "" || l.Stream == o.Stream) && !l.Time.Before(o.Since)
}

// Read calls yield for the lines of the log in dir, in order. This or another process may write to the log meanwhile.
// Lines that were deleted before Read reached them, or that the Writer could not write, yield a Line with their number
// in Lost. Lines older than the first kept line are not counted. Read returns yield's error, or the context's when it
// ended.
func Read(ctx context.Context, dir string, opt Options, yield func(Line) error) error {
	r := reader{dir: dir, opt: opt, yield: yield}
	defer r.close()
	if err := r.begin(); err != nil {
		return err
	}
	wait := minPollInterval
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for last := false; ; {
		n, err := r.drain(ctx)
		if err != nil || !opt.Follow || last {
			return err
		}
		wait = min(2*wait, maxPollInterval)
		if n > 0 {
			wait = minPollInterval
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-opt.Done:
			last = true
		case <-timer.C:
		}
	}
}

// reader is the state of one Read.
type reader struct {
	dir   string
	opt   Options
	yield func(Line) error

	file   *os.File
	first  int64 // number of the file's first line
	offset int64 // of the next line in file
	next   int64 // number of the next line; -1 before the first
	skip   int64 // matching lines that are too old for Tail
}

func (r *reader) close() {
	if r.file != nil {
		_ = r.file.Close()
	}
}

// begin finds the first line to return.
func (r *reader) begin() error {
	r.next = -1
	firsts, err := segments(r.dir)
	if err != nil || r.opt.Tail == 0 || len(firsts) == 0 {
		if len(firsts) == 0 {
			r.next = 0
		}
		return err
	}
	want := int64(max(r.opt.Tail, 0))
	var found int64
	for _, first := range slices.Backward(firsts) {
		f, err := os.Open(segmentPath(r.dir, first))
		if os.IsNotExist(err) {
			break
		}
		if err != nil {
			return fmt.Errorf("open log segment: %w", err)
		}
		scan(f, 0, func(l Line, err error) bool {
			if err == nil && r.opt.matches(l) {
				found++
			}
			return true
		})
		if r.file != nil {
			_ = r.file.Close()
		}
		r.file, r.first, r.next = f, first, first
		if found >= want {
			break
		}
	}
	r.skip = max(found-want, 0)
	return nil
}

// drain yields all available lines and returns how many it passed.
func (r *reader) drain(ctx context.Context) (passed int64, err error) {
	for {
		n, err := r.segment(ctx)
		passed += n
		if err != nil {
			return passed, err
		}
		more, err := r.advance(ctx)
		if err != nil || !more {
			return passed, err
		}
	}
}

// segment yields the remaining complete lines of the open file.
func (r *reader) segment(ctx context.Context) (passed int64, err error) {
	if r.file == nil {
		return 0, nil
	}
	if info, err := r.file.Stat(); err == nil && info.Size() <= r.offset {
		return 0, nil
	}
	_, size := scan(r.file, r.offset, func(l Line, bad error) bool {
		if err = ctx.Err(); err != nil {
			return false
		}
		passed++
		r.next += count(l, bad)
		if bad != nil || !r.opt.matches(l) {
			return true
		}
		if r.skip > 0 {
			r.skip--
			return true
		}
		err = r.yield(l)
		return err == nil
	})
	r.offset = size
	return passed, err
}

// advance opens the next segment, if there is one, once the open one was read to its end.
func (r *reader) advance(ctx context.Context) (bool, error) {
	firsts, err := segments(r.dir)
	if err != nil {
		return false, err
	}
	at := slices.IndexFunc(firsts, func(first int64) bool { return r.file == nil || first > r.first })
	if at < 0 {
		return false, nil
	}
	// The writer may have written to the open one until it made the next.
	if _, err := r.segment(ctx); err != nil {
		return false, err
	}
	first := firsts[at]
	f, err := os.Open(segmentPath(r.dir, first))
	if os.IsNotExist(err) {
		return true, nil // deleted meanwhile: search again
	}
	if err != nil {
		return false, fmt.Errorf("open log segment: %w", err)
	}
	r.close()
	lost := first - r.next
	known := r.next >= 0
	r.file, r.first, r.offset, r.next = f, first, 0, first
	if known && lost > 0 {
		return true, r.yield(Line{Lost: lost})
	}
	return true, nil
}

// scan calls each for the complete lines of f from offset on. It returns the number of program lines in them, and the
// offset after the last line that each accepted. Each may be nil.
func scan(f io.ReaderAt, offset int64, each func(Line, error) bool) (lines, after int64) {
	buf := make([]byte, 0, blockSize)
	at := offset // offset in f of the next byte to read; buf holds offset..at
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, blockSize) // longer than a block: not from a Writer, but accepted
		}
		n, err := f.ReadAt(buf[len(buf):cap(buf)], at)
		buf, at = buf[:len(buf)+n], at+int64(n)
		used := 0
		for {
			i := bytes.IndexByte(buf[used:], '\n')
			if i < 0 {
				break
			}
			l, bad := Parse(buf[used : used+i])
			ok := each == nil || each(l, bad)
			used, offset, lines = used+i+1, offset+int64(i)+1, lines+count(l, bad)
			if !ok {
				return lines, offset
			}
		}
		buf = buf[:copy(buf, buf[used:])]
		if err != nil || n == 0 {
			return lines, offset
		}
	}
}

// Tail returns the end of the output in the log in dir, both streams in their order, without times: at most limit
// bytes. A log that cannot be read has an empty tail.
func Tail(dir string, limit int) string {
	firsts, _ := segments(dir)
	// A line of one byte takes 46 in the file.
	window := int64(limit)*46 + MaxLine + 64
	var tail string
	for _, first := range slices.Backward(firsts) {
		f, err := os.Open(segmentPath(dir, first))
		if err != nil {
			break
		}
		var text strings.Builder
		var start int64
		if info, err := f.Stat(); err == nil {
			start = max(info.Size()-window, 0)
		}
		cut := start > 0 // the first line is probably torn
		scan(f, start, func(l Line, bad error) bool {
			if !cut && bad == nil && l.Lost == 0 {
				text.WriteString(l.Text)
				if !l.Partial {
					text.WriteByte('\n')
				}
			}
			cut = false
			return true
		})
		_ = f.Close()
		tail = text.String() + tail
		if len(tail) >= limit {
			break
		}
	}
	if len(tail) > limit {
		tail = tail[len(tail)-limit:]
		for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
			tail = tail[1:]
		}
	}
	return tail
}
