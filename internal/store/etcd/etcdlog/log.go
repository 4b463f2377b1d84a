// Package etcdlog passes etcd's messages to Berth's log, and finds in them what etcd reports in no other way: the
// contact with other members, and why a server ended.
package etcdlog

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

	"github.com/berthd/berth/internal/shorten"
)

// isIrrelevant reports whether a message of etcd has no meaning here. The first is about listeners, and there are none.
// The next two are about a database without its first write. The last is about a promotion that is requested until it
// succeeds.
func isIrrelevant(message string) bool {
	switch message {
	case "Running http and grpc server on single port. This is not recommended for production.",
		"Failed to detect schema version",
		"failed to update storage version",
		"rejecting promote learner: learner is not ready":
		return true
	}
	// A single member that starts elects itself once it has applied its own membership.
	return strings.HasSuffix(message, "since there are still pending configuration changes to apply")
}

// errorCancelled is the error of etcd's own writes that the end of its server has interrupted.
const errorCancelled = "etcdserver: request cancelled"

// New returns a logger for etcd that passes warnings and errors to log. If etcd ends the process (Fatal or Panic),
// the log has one line with the cause, written before the end.
func New(log *slog.Logger) *zap.Logger {
	return zap.New(core{
		log: log, LevelEnabler: zapcore.WarnLevel, repeats: new(repeatLimiter), slow: new(slowLimiter),
	}, ending...)
}

// NewForMember is New for a member among others. Messages about other members go to c.
func NewForMember(log *slog.Logger, c *Contacts) *zap.Logger {
	return zap.New(core{
		log: log, LevelEnabler: zapcore.InfoLevel, contacts: c, repeats: new(repeatLimiter), slow: new(slowLimiter),
	}, ending...)
}

// ending ends the process when etcd cannot continue.
var ending = []zap.Option{
	zap.WithPanicHook(endHook{zapcore.WriteThenPanic}),
	zap.WithFatalHook(endHook{zapcore.WriteThenFatal}),
}

// endHook ends the process where etcd does. On a full disk it prints no stack traces, since the program has no fault.
type endHook struct{ otherwise zapcore.CheckWriteHook }

// OnWrite is part of zapcore.CheckWriteHook. The cause is already in the log.
func (w endHook) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	if isDiskFull(fields) {
		fmt.Fprintln(os.Stderr, "berth: the disk of the data directory is full, and the store cannot continue "+
			"without room:",
			"free some and start the server again. Nothing that was acknowledged is lost.")
		os.Exit(1)
	}
	w.otherwise.OnWrite(entry, fields)
}

// isDiskFull reports whether a full disk caused a message of etcd.
func isDiskFull(fields []zapcore.Field) bool {
	return slices.ContainsFunc(fields, func(f zapcore.Field) bool {
		err, ok := f.Interface.(error)
		return ok && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT))
	})
}

// repeatLimiter keeps repeated messages of etcd from filling the log. etcd repeats some messages thousands of times a
// second while a disk is full.
type repeatLimiter struct {
	mu    sync.Mutex
	times map[string]*messageCount
}

type messageCount struct {
	since              time.Time
	logged, suppressed int
}

// maxRepeatsPerSecond limits how often the same message is logged within a second.
const maxRepeatsPerSecond = 10

// count counts a message. It reports whether the limit was reached, and if not, how many messages were suppressed since
// the last one that was logged.
func (e *repeatLimiter) count(message string, now time.Time) (limited bool, suppressed int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.times[message]
	if s == nil || now.Sub(s.since) >= time.Second || now.Before(s.since) {
		if s != nil {
			suppressed = s.suppressed
		}
		if e.times == nil || len(e.times) > 1000 {
			e.times = map[string]*messageCount{}
		}
		e.times[message] = &messageCount{since: now, logged: 1}
		return false, suppressed
	}
	if s.logged == maxRepeatsPerSecond {
		s.suppressed++
		return true, 0
	}
	s.logged++
	return false, 0
}

type core struct {
	zapcore.LevelEnabler
	log      *slog.Logger
	fields   []zapcore.Field
	contacts *Contacts // may be nil
	repeats  *repeatLimiter
	slow     *slowLimiter
}

// With is part of zapcore.Core.
func (c core) With(fields []zapcore.Field) zapcore.Core {
	c.fields = slices.Concat(c.fields, fields)
	return c
}

// Check is part of zapcore.Core.
func (c core) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	isRelevant := entry.Level >= zapcore.WarnLevel || entry.Message == messageActive
	if c.Enabled(entry.Level) && isRelevant && !isIrrelevant(entry.Message) {
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
	if c.contacts != nil && c.contacts.handle(c.log, entry.Message, encoder.Fields) {
		return nil
	}
	if isSlow(entry.Message) && c.slow.due(entry.Time) {
		c.log.Warn(slowText, "took", tookOf(encoder.Fields))
	}
	limited, suppressed := c.repeats.count(entry.Message, entry.Time)
	if limited && entry.Level < zapcore.DPanicLevel {
		return nil
	}
	var attrs []slog.Attr
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("kept_back", suppressed))
	}
	for _, key := range slices.Sorted(maps.Keys(encoder.Fields)) {
		if key != "stack" && key != "stacktrace" {
			attrs = append(attrs, slog.Any(key, brief(encoder.Fields[key])))
		}
	}
	level, message := slog.LevelWarn, "etcd: "+entry.Message
	switch {
	case entry.Level >= zapcore.DPanicLevel:
		level, message = slog.LevelError, "etcd cannot continue, the process ends: "+entry.Message
	case entry.Level >= zapcore.ErrorLevel:
		level = slog.LevelError
	}
	if c.contacts != nil && isRepeated(entry.Message) || entry.Message == messageRetry ||
		isSlow(entry.Message) || isDelay(entry.Message) ||
		encoder.Fields["error"] == errorCancelled {
		level = slog.LevelDebug
	}
	c.log.LogAttrs(context.Background(), level, message, attrs...) //nolint:sloglint // the message is etcd's
	return nil
}

// brief shortens long values, such as a request of thousands of operations, which etcd prints in full.
func brief(value any) any {
	if s, ok := value.(string); ok {
		return shorten.Marked(s, 200)
	}
	return value
}

// Sync is part of zapcore.Core.
func (c core) Sync() error { return nil }
