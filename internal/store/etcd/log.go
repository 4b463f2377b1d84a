package etcd

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"

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
	return zap.New(core{log: log, LevelEnabler: zapcore.WarnLevel})
}

// memberBridge is bridge for a member among others, of which etcd speaks to c.
func memberBridge(log *slog.Logger, c *contacts) *zap.Logger {
	return zap.New(core{log: log, LevelEnabler: zapcore.InfoLevel, contacts: c})
}

type core struct {
	zapcore.LevelEnabler
	log      *slog.Logger
	fields   []zapcore.Field
	contacts *contacts // may be nil
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
	var attrs []slog.Attr
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
