package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// moot says that a message means nothing here: the first is about listeners, which there
// are none; the next come of a database so young that its first write is not in it yet; the last of a
// promotion that is asked for until it is granted.
func moot(message string) bool {
	switch message {
	case "Running http and grpc server on single port. This is not recommended for production.",
		"Failed to detect schema version",
		"failed to update storage version",
		"rejecting promote learner: learner is not ready":
		return true
	}
	// A single member that starts elects itself once it has applied what made it a member.
	return strings.HasSuffix(message, "since there are still pending configuration changes to apply")
}

// bridge returns a logger for etcd that hands warnings and worse to log. What ends the
// process, etcd's Fatal and Panic, is one line with its cause, written before the end.
func bridge(log *slog.Logger) *zap.Logger {
	return zap.New(core{log: log, LevelEnabler: zapcore.WarnLevel, echoes: new(echoes)}, ending...)
}

// memberBridge is bridge for a member among others, of which etcd speaks to c.
func memberBridge(log *slog.Logger, c *contacts) *zap.Logger {
	return zap.New(core{log: log, LevelEnabler: zapcore.InfoLevel, contacts: c, echoes: new(echoes)}, ending...)
}

// ending is how the process ends where etcd cannot go on.
var ending = []zap.Option{
	zap.WithPanicHook(lastWord{zapcore.WriteThenPanic}),
	zap.WithFatalHook(lastWord{zapcore.WriteThenFatal}),
}

// lastWord ends the process where etcd does: for a full disk without the traces of a fault in a program, as there is
// none.
type lastWord struct{ otherwise zapcore.CheckWriteHook }

// OnWrite is part of zapcore.CheckWriteHook. The cause is in the log by now.
func (w lastWord) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	if fullDisk(fields) {
		fmt.Fprintln(os.Stderr, "berth: the disk of the data directory is full, and the store cannot go on "+
			"without room:",
			"free some and start the server again. Nothing that was acknowledged is lost.")
		os.Exit(1)
	}
	w.otherwise.OnWrite(entry, fields)
}

// fullDisk reports whether what etcd tells of came of a full disk.
func fullDisk(fields []zapcore.Field) bool {
	return slices.ContainsFunc(fields, func(f zapcore.Field) bool {
		err, ok := f.Interface.(error)
		return ok && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT))
	})
}

// echoes keep a message of etcd that comes again and again from filling the log: some are said thousands of times a
// second while a disk is full.
type echoes struct {
	mu    sync.Mutex
	times map[string]*saying
}

type saying struct {
	since      time.Time
	said, kept int
}

// Within a second a message is said mostSaid times.
const mostSaid = 10

// again takes note of a message and reports whether it has been said enough, and if not, how many were kept back since
// it was said last.
func (e *echoes) again(message string, now time.Time) (enough bool, kept int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.times[message]
	if s == nil || now.Sub(s.since) >= time.Second || now.Before(s.since) {
		if s != nil {
			kept = s.kept
		}
		if e.times == nil || len(e.times) > 1000 {
			e.times = map[string]*saying{}
		}
		e.times[message] = &saying{since: now, said: 1}
		return false, kept
	}
	if s.said == mostSaid {
		s.kept++
		return true, 0
	}
	s.said++
	return false, 0
}

type core struct {
	zapcore.LevelEnabler
	log      *slog.Logger
	fields   []zapcore.Field
	contacts *contacts // may be nil
	echoes   *echoes
}

// With is part of zapcore.Core.
func (c core) With(fields []zapcore.Field) zapcore.Core {
	c.fields = slices.Concat(c.fields, fields)
	return c
}

// Check is part of zapcore.Core.
func (c core) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	told := entry.Level >= zapcore.WarnLevel || entry.Message == saysActive
	if c.Enabled(entry.Level) && told && !moot(entry.Message) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write is part of zapcore.Core.
func (c core) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	encoder := zapcore.NewMapObjectEncoder()
	for _, f := range slices.Concat(c.fields, fields) {
		f.AddTo(encoder)
	}
	if c.contacts != nil && c.contacts.tell(c.log, entry.Message, encoder.Fields) {
		return nil
	}
	enough, kept := c.echoes.again(entry.Message, entry.Time)
	if enough && entry.Level < zapcore.DPanicLevel {
		return nil
	}
	var attrs []slog.Attr
	if kept > 0 {
		attrs = append(attrs, slog.Int("kept_back", kept))
	}
	for _, key := range slices.Sorted(maps.Keys(encoder.Fields)) {
		if key != "stack" && key != "stacktrace" {
			attrs = append(attrs, slog.Any(key, brief(encoder.Fields[key])))
		}
	}
	level, message := slog.LevelWarn, "etcd: "+entry.Message
	switch {
	case entry.Level >= zapcore.DPanicLevel:
		level, message = slog.LevelError, "etcd cannot go on, the process ends: "+entry.Message
	case entry.Level >= zapcore.ErrorLevel:
		level = slog.LevelError
	}
	if c.contacts != nil && repeated(entry.Message) || entry.Message == saysRetry {
		level = slog.LevelDebug
	}
	c.log.LogAttrs(context.Background(), level, message, attrs...) //nolint:sloglint // the message is etcd's
	return nil
}

// brief cuts what etcd likes to print in whole: a request of thousands of operations.
func brief(value any) any {
	const most = 200
	if s, ok := value.(string); ok && len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return value
}

// Sync is part of zapcore.Core.
func (c core) Sync() error { return nil }
