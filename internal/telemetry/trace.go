package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/berthd/berth/internal/cluster"
)

// Tracer makes the spans of one process. A nil Tracer makes none and costs nothing. It is safe for concurrent use.
//
// The parent of a span travels as a W3C traceparent: from the request into the spec that it wrote, from there with the
// plan into the desired record, and with the assignment to the agent. It serves people only: no decision depends on it.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// TracerConfig holds the settings of OpenTracer.
type TracerConfig struct {
	// Endpoint is where spans are sent by OTLP over HTTP, such as "http://127.0.0.1:4318"; with a path, to that, else
	// to /v1/traces. Empty means that none are made.
	Endpoint string
	// Instance names the process, and Version its build.
	Instance, Version string
	Log               *slog.Logger
}

// OpenTracer returns a tracer, nil if the endpoint is empty. It connects with the first spans. An unreachable collector
// costs spans and an occasional log line, and delays nothing.
func OpenTracer(ctx context.Context, c TracerConfig) (*Tracer, error) {
	if c.Endpoint == "" {
		return nil, nil //nolint:nilnil // a nil Tracer makes no spans
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("endpoint of traces %q: want http://host:port", c.Endpoint)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()))
	if err != nil {
		return nil, fmt.Errorf("export traces to %s: %w", u.Redacted(), err)
	}
	return newTracer(c, &quiet{SpanExporter: exporter, log: c.Log}), nil
}

func newTracer(c TracerConfig, to sdk.SpanExporter) *Tracer {
	p := sdk.NewTracerProvider(sdk.WithBatcher(to), sdk.WithResource(resource.NewSchemaless(
		attribute.String("service.name", "berth"),
		attribute.String("service.instance.id", c.Instance),
		attribute.String("service.version", c.Version),
	)))
	return &Tracer{provider: p, tracer: p.Tracer("github.com/berthd/berth")}
}

// Close sends the remaining spans, until the context ends.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// About is the subject of a span; empty fields are left out. The keys of its attributes are those of the log's lines.
type About struct {
	Owner   cluster.OwnerRef
	Task    cluster.TaskID
	Attempt int
	Node    string
	// What is the step of an attempt, the container, the route of a request.
	What  string
	Count int
	// Began, unless zero, is when it began; now otherwise.
	Began time.Time
}

// Span is something that takes time. A nil Span does nothing.
type Span struct{ span trace.Span }

// Span begins a span below a parent, which is a traceparent; without one it begins a trace.
func (t *Tracer) Span(name, parent string, about About) *Span {
	if t == nil {
		return nil
	}
	options := []trace.SpanStartOption{trace.WithAttributes(about.attributes()...)}
	if !about.Began.IsZero() {
		options = append(options, trace.WithTimestamp(about.Began))
	}
	ctx := context.Background()
	if p, ok := parse(parent); ok {
		ctx = trace.ContextWithRemoteSpanContext(ctx, p)
	}
	_, span := t.tracer.Start(ctx, name, options...)
	return &Span{span}
}

func (a *About) attributes() []attribute.KeyValue {
	var out []attribute.KeyValue
	add := func(key, value string) {
		if value != "" {
			out = append(out, attribute.String(key, value))
		}
	}
	if a.Owner.Name != "" {
		add(KeyOwner, a.Owner.String())
	}
	add(KeyTask, string(a.Task))
	add(KeyNode, a.Node)
	add("what", a.What)
	if a.Attempt != 0 {
		out = append(out, attribute.Int(KeyAttempt, a.Attempt))
	}
	if a.Count != 0 {
		out = append(out, attribute.Int("count", a.Count))
	}
	return out
}

// End ends the span: well, or with why it failed.
func (s *Span) End(err error) {
	if s == nil {
		return
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}

// Parent returns the traceparent for children of the span. For a nil Span it is own, so that a process without a tracer
// passes on its input.
func (s *Span) Parent(own string) string {
	if s == nil {
		return own
	}
	c := s.span.SpanContext()
	return "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-" + c.TraceFlags().String()
}

// traceparent matches version 00 of W3C Trace Context.
var traceparent = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$`)

// Traceparent returns a received traceparent, or "" if it is invalid, because received values are stored.
func Traceparent(sent string) string {
	sent = strings.ToLower(strings.TrimSpace(sent))
	if _, ok := parse(sent); !ok {
		return ""
	}
	return sent
}

func parse(s string) (trace.SpanContext, bool) {
	m := traceparent.FindStringSubmatch(s)
	if m == nil {
		return trace.SpanContext{}, false
	}
	id, err := trace.TraceIDFromHex(m[1])
	if err != nil {
		return trace.SpanContext{}, false // all zero
	}
	span, err := trace.SpanIDFromHex(m[2])
	if err != nil {
		return trace.SpanContext{}, false
	}
	flags, err := strconv.ParseUint(m[3], 16, 8)
	if err != nil {
		return trace.SpanContext{}, false
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: span, TraceFlags: trace.TraceFlags(flags) & trace.FlagsSampled, Remote: true,
	}), true
}

// complainEvery is the interval of log lines about spans that cannot be sent.
const complainEvery = time.Minute

// quiet logs now and then that spans were lost, in place of the library's own line for each batch.
type quiet struct {
	sdk.SpanExporter
	log *slog.Logger

	mu   sync.Mutex
	last time.Time
	lost int
}

// ExportSpans is part of sdk.SpanExporter. Lost spans are not an error.
func (q *quiet) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := q.SpanExporter.ExportSpans(ctx, spans)
	if err == nil || q.log == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lost += len(spans)
	if time.Since(q.last) < complainEvery {
		return nil
	}
	q.log.Warn("spans could not be sent", "lost", q.lost, "error", err)
	q.last, q.lost = time.Now(), 0
	return nil
}
