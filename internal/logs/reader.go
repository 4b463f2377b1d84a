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

// How long a follower waits before it looks again: a little while lines come, more when the log is quiet.
const (
	pollSoon = 10 * time.Millisecond
	pollMost = 100 * time.Millisecond
)

// block is how much of a segment is read at once.
const block = 256 << 10

// Options say which lines Read returns.
type Options struct {
	// Follow goes on with lines that come later, until the context ends or Done is closed.
	Follow bool
	// Done, unless nil, tells a follower that no more lines will come: it returns at the end of those there.
	Done <-chan struct{}
	// Tail, if positive, is how many of the newest lines that fit come first; 0 is all, a negative
	// number none, which makes sense with Follow.
	Tail int
	// Since, unless zero, leaves out lines before it.
	Since time.Time
	// Stream, unless empty, leaves out the other one.
	Stream Stream
}

func (o *Options) fits(l Line) bool {
	return (o.Stream == "" || l.Stream == o.Stream) && !l.Time.Before(o.Since)
}

// Read calls yield for the lines of the log in dir, in order. The log may be written meanwhile by this or
// another process. Lines that were deleted before Read came to them, or that the Writer could not write, come as
// a Line with their number in Lost; those older than the first line kept are not counted. Read
// returns yield's error, or the context's when it ended.
func Read(ctx context.Context, dir string, opt Options, yield func(Line) error) error {
	r := reader{dir: dir, opt: opt, yield: yield}
	defer r.close()
	if err := r.begin(); err != nil {
		return err
	}
	wait := pollSoon
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for last := false; ; {
		n, err := r.drain(ctx)
		if err != nil || !opt.Follow || last {
			return err
		}
		wait = min(2*wait, pollMost)
		if n > 0 {
			wait = pollSoon
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

// reader is one Read.
type reader struct {
	dir   string
	opt   Options
	yield func(Line) error

	file   *os.File
	first  int64 // number of the file's first line
	offset int64 // in file, of the next line
	next   int64 // number of the next line; -1 before the first
	skip   int64 // lines that fit but are too old for Tail
}

func (r *reader) close() {
	if r.file != nil {
		_ = r.file.Close()
	}
}

// begin finds the place of the first line.
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
			if err == nil && r.opt.fits(l) {
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

// drain yields all lines that are there and returns how many it passed.
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

// segment yields the whole lines that follow in the open file.
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
		if bad != nil || !r.opt.fits(l) {
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

// advance opens the segment after the open one, if there is one, once all of the open one was read.
func (r *reader) advance(ctx context.Context) (bool, error) {
	firsts, err := segments(r.dir)
	if err != nil {
		return false, err
	}
	at := slices.IndexFunc(firsts, func(first int64) bool { return r.file == nil || first > r.first })
	if at < 0 {
		return false, nil
	}
	// The writer may have written to the open one up to the moment that it made the next.
	if _, err := r.segment(ctx); err != nil {
		return false, err
	}
	first := firsts[at]
	f, err := os.Open(segmentPath(r.dir, first))
	if os.IsNotExist(err) {
		return true, nil // deleted since: look again
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

// scan calls each for the whole lines of f from offset on and returns how many lines they stand for
// and the offset after the last that each accepted. Each may be nil.
func scan(f io.ReaderAt, offset int64, each func(Line, error) bool) (lines, after int64) {
	buf := make([]byte, 0, block)
	at := offset // in f, of what is to be read next; buf holds offset..at
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, block) // a line longer than a block: not one of ours, but let it pass
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

// Tail returns the end of the output in the log in dir, both streams as they came, without times: at most
// limit bytes. It is for people: a log that cannot be read has an empty tail.
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
		cut := start > 0 // the first line is likely torn
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
