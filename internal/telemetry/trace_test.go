package telemetry_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/telemetry"
)

const sent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestTraceparent(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"right":        {sent, sent},
		"upper case":   {strings.ToUpper(sent), sent},
		"not sampled":  {strings.TrimSuffix(sent, "01") + "00", strings.TrimSuffix(sent, "01") + "00"},
		"none":         {"", ""},
		"long":         {sent + strings.Repeat("0", 1<<20), ""},
		"other form":   {"0af7651916cd43dd8448eb211c80319c", ""},
		"no trace":     {"00-00000000000000000000000000000000-b7ad6b7169203331-01", ""},
		"no span":      {"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", ""},
		"later form":   {"cc" + sent[2:], ""},
		"line in line": {sent + "\nx", ""},
	} {
		if got := telemetry.Traceparent(c.in); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestSpansBelongTogether(t *testing.T) {
	to := tracetest.NewInMemoryExporter()
	tracer := telemetry.TracerTo("s1", to)
	began := time.Now().Add(-time.Minute)
	first := tracer.Span("first", sent, telemetry.About{
		Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "build"}, Task: "t", Attempt: 2, Node: "n1",
		What: "w", Count: 3, Began: began,
	})
	second := tracer.Span("second", first.Parent("ignored"), telemetry.About{})
	second.End(errors.New("the disk is full"))
	first.End(context.Canceled)
	quiet := tracer.Span("not sampled", strings.TrimSuffix(sent, "01")+"00", telemetry.About{})
	quiet.End(nil)
	alone := tracer.Span("alone", "nonsense", telemetry.About{})
	alone.End(nil)
	if err := tracer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := map[string]tracetest.SpanStub{}
	for _, s := range to.GetSpans() {
		got[s.Name] = s
	}
	if len(got) != 3 {
		t.Errorf("got %d spans, want 3: what is not sampled is not sent", len(got))
	}
	f, s := got["first"], got["second"]
	if f.SpanContext.TraceID().String() != sent[3:35] || f.Parent.SpanID().String() != sent[36:52] ||
		s.Parent.SpanID() != f.SpanContext.SpanID() {
		t.Errorf("they do not belong together: %+v %+v", f, s)
	}
	if got["alone"].Parent.IsValid() || got["alone"].SpanContext.TraceID() == f.SpanContext.TraceID() {
		t.Error("a span without a parent does not begin a trace of its own")
	}
	if s.Status.Code != codes.Error || s.Status.Description != "the disk is full" || f.Status.Code != codes.Unset ||
		!f.StartTime.Equal(began) {
		t.Errorf("status %+v and %+v, began %v", s.Status, f.Status, f.StartTime)
	}
	attributes := map[string]string{}
	for _, a := range f.Attributes {
		attributes[string(a.Key)] = a.Value.String()
	}
	want := map[string]string{
		"owner": "c/job/build", "task": "t", "attempt": "2", "node": "n1", "what": "w",
		"count": "3",
	}
	if diff := cmp.Diff(want, attributes); diff != "" {
		t.Error(diff)
	}
	if err := tracer.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNoTracerCostsNothing(t *testing.T) {
	var tracer *telemetry.Tracer
	about := telemetry.About{Task: "t", Node: "n1"}
	if n := testing.AllocsPerRun(100, func() {
		s := tracer.Span("x", sent, about)
		if s.Parent(sent) != sent {
			t.Error("it does not hand on what it was given")
		}
		s.End(nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if err := tracer.Close(t.Context()); err != nil {
		t.Error(err)
	}
	tracer, err := telemetry.OpenTracer(t.Context(), telemetry.TracerConfig{})
	if tracer != nil || err != nil {
		t.Errorf("without an endpoint: got %v %v", tracer, err)
	}
}

func TestSpansAreSent(t *testing.T) {
	var mu sync.Mutex
	var paths []string
	var body []byte
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		paths = append(paths, r.URL.Path)
		from := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			from, _ = gzip.NewReader(r.Body)
		}
		body, _ = io.ReadAll(from)
	}))
	defer collector.Close()
	for _, path := range []string{"", "/", "/deep/traces"} {
		tracer, err := telemetry.OpenTracer(t.Context(),
			telemetry.TracerConfig{Endpoint: collector.URL + path, Instance: "server-7"})
		if err != nil {
			t.Fatal(err)
		}
		tracer.Span("a span's name", "", telemetry.About{}).End(nil)
		if err := tracer.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{"/v1/traces", "/v1/traces", "/deep/traces"}, paths); diff != "" {
		t.Error(diff)
	}
	if !bytes.Contains(body, []byte("a span's name")) || !bytes.Contains(body, []byte("server-7")) {
		t.Errorf("the collector was sent %q", body)
	}
	for _, bad := range []string{"127.0.0.1:4318", "ftp://x", "http://", "://"} {
		if _, err := telemetry.OpenTracer(t.Context(), telemetry.TracerConfig{Endpoint: bad}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

type broken struct{ sdk.SpanExporter }

func (broken) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { return errors.New("no route") }
func (broken) Shutdown(context.Context) error                        { return nil }

func TestUnreachableCollectorIsReportedOnce(t *testing.T) {
	var log bytes.Buffer
	tracer := telemetry.TracerTo("s1", telemetry.Quiet(broken{}, slog.New(slog.NewTextHandler(&log, nil))))
	for range 5 {
		tracer.Span("x", "", telemetry.About{}).End(nil)
		if err := tracer.Flush(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Count(log.String(), "spans could not be sent"); got != 1 {
		t.Errorf("the log has it %d times:\n%s", got, log.String())
	}
	if err := tracer.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
