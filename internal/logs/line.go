// Package logs stores the output of a container's program in files.
//
// A log is a folder that one Writer fills. Any number of readers, in any process, read it at the same time. The folder
// holds segments: files of lines, each named by the number of its first line, counted from the container's start. The
// newest segment grows. When it is full, the Writer begins the next one and deletes the oldest. A slow reader finds a
// gap between two line numbers, which is the number of lost lines. The program never waits for readers.
//
// A line in a segment has the log format of the Kubernetes container runtime interface: time, stream, tags and text,
// "2026-11-20T06:00:00.000000000Z stdout F text". The tag F ends a line. The tag P marks a part of a line that was too
// long or unfinished. "F:lost=12" means 12 lines that could not be written.
package logs

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Stream names one of the two outputs of a program.
type Stream = cluster.LogStream

// Streams of a program.
const (
	Stdout = cluster.StreamStdout
	Stderr = cluster.StreamStderr
)

// Line is one line of a log, or a gap with the number of its lines.
type Line struct {
	Time   time.Time `json:"time,omitzero"`
	Stream Stream    `json:"stream,omitempty"`
	// Text is the text without the end of the line. It may contain bytes that are not UTF-8, as the program wrote them.
	Text string `json:"text,omitempty"`
	// Partial means that the text continues in the stream's next line.
	Partial bool `json:"partial,omitempty"`
	// Lost, unless 0, is the number of lines missing here; Text is then empty.
	Lost int64 `json:"lost,omitempty"`
}

// timeFormat is RFC 3339 with all nine digits, so that times sort as text.
const timeFormat = "2006-01-02T15:04:05.000000000Z07:00"

const lostTag = "F:lost="

// ErrMalformed means that bytes are not a line of a log.
var ErrMalformed = errors.New("not a line of a log")

// Append appends the line in the form of a file, with its end, to dst and returns the result.
func Append(dst []byte, l Line) []byte {
	dst = l.Time.UTC().AppendFormat(dst, timeFormat)
	dst = append(dst, ' ')
	dst = append(dst, l.Stream...)
	switch {
	case l.Lost > 0:
		dst = append(dst, ' ')
		dst = append(dst, lostTag...)
		dst = strconv.AppendInt(dst, l.Lost, 10)
		return append(dst, " \n"...)
	case l.Partial:
		dst = append(dst, " P "...)
	default:
		dst = append(dst, " F "...)
	}
	dst = append(dst, l.Text...)
	return append(dst, '\n')
}

// Parse reads a line of a file, without its end, and ignores unknown tags. Its errors wrap ErrMalformed.
func Parse(b []byte) (Line, error) {
	stamp, rest, ok := bytes.Cut(b, []byte{' '})
	if !ok {
		return Line{}, fmt.Errorf("%w: no time", ErrMalformed)
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return Line{}, fmt.Errorf("%w: the time is not RFC 3339", ErrMalformed)
	}
	stream, rest, ok := bytes.Cut(rest, []byte{' '})
	if s := Stream(stream); !ok || s != Stdout && s != Stderr {
		return Line{}, fmt.Errorf("%w: the stream is neither stdout nor stderr", ErrMalformed)
	}
	tags, text, ok := bytes.Cut(rest, []byte{' '})
	if !ok || bytes.IndexByte(text, '\n') >= 0 {
		return Line{}, fmt.Errorf("%w: no text", ErrMalformed)
	}
	l := Line{Time: at.UTC(), Stream: Stream(stream), Text: string(text)}
	switch first, _, _ := bytes.Cut(tags, []byte{':'}); string(first) {
	case "F":
	case "P":
		l.Partial = true
	default:
		return Line{}, fmt.Errorf("%w: the tag is neither F nor P", ErrMalformed)
	}
	if n, ok := bytes.CutPrefix(tags, []byte(lostTag)); ok {
		l.Lost, err = strconv.ParseInt(string(n), 10, 64)
		if err != nil || l.Lost < 1 || l.Text != "" {
			return Line{}, fmt.Errorf("%w: the number of lost lines is unreadable", ErrMalformed)
		}
	}
	return l, nil
}
