package streams

import (
	"context"
	"errors"
	"iter"
	"os"

	"github.com/berthd/berth/internal/logs"
)

// containerLog is the log of one container, read line by line.
type containerLog struct {
	container string
	dir       string

	next func() (logs.Line, error, bool)
	stop func()
	line logs.Line
	done bool
}

// readMerged writes the present lines of several logs in the order of their times. Each log contributes as many lines
// as the options say. A log that does not exist is empty.
func readMerged(ctx context.Context, all []*containerLog, opt logs.Options, out *lineWriter) error {
	opt.Follow = false
	for _, l := range all {
		l.next, l.stop = iter.Pull2(lines(ctx, l.dir, opt))
		defer l.stop()
		if err := l.advance(); err != nil {
			return err
		}
	}
	for {
		var first *containerLog
		for _, l := range all {
			if !l.done && (first == nil || l.line.Time.Before(first.line.Time)) {
				first = l
			}
		}
		if first == nil {
			return nil
		}
		if err := out.from(first.container)(first.line); err != nil {
			return err
		}
		if err := first.advance(); err != nil {
			return err
		}
	}
}

// advance reads the next line of the log.
func (l *containerLog) advance() error {
	line, err, ok := l.next()
	if err != nil {
		return err
	}
	l.line, l.done = line, !ok
	return nil
}

// errStopped ends a read whose reader has enough.
var errStopped = errors.New("no more lines are wanted")

// lines returns the lines of a log. An error ends the sequence.
func lines(ctx context.Context, dir string, opt logs.Options) iter.Seq2[logs.Line, error] {
	return func(yield func(logs.Line, error) bool) {
		err := logs.Read(ctx, dir, opt, func(l logs.Line) error {
			if !yield(l, nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) && !errors.Is(err, os.ErrNotExist) {
			yield(logs.Line{}, err)
		}
	}
}
