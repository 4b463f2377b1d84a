package consul

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/internal/testkit"
)

// rates are a server's own limits of requests a second, which it enforces.
func rates(read, write float64) map[string]any {
	return map[string]any{"limits": map[string]any{"request_limits": map[string]any{
		"mode": "enforcing", "read_rate": read, "write_rate": write,
	}}}
}

// logged counts the lines of a log by their message.
type logged struct {
	mu    sync.Mutex
	lines map[string]int
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }
func (l *logged) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logged) WithGroup(string) slog.Handler            { return l }
func (l *logged) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines[r.Message]++
	return nil
}

func (l *logged) count(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for message, times := range l.lines {
		if strings.Contains(message, part) {
			n += times
		}
	}
	return n
}

// TestConsulLimitsTheRate uses up what a Consul with low limits lets through at once, and then writes from many
// goroutines. The engine waits and tries again, so each write is acknowledged, or refused with the reason. What was
// acknowledged is there, and what was refused is not; the watch delivers the same. The log and the health name the
// limit.
func TestConsulLimitsTheRate(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, 1, consultest.Options{Config: rates(30, 8)})[0]
	log := &logged{lines: map[string]int{}}
	config := reaching(s)
	config.Log = slog.New(log)
	e := dialAs(t, config)
	watch := e.Watch(t.Context(), "berth/", 0)
	defer watch.Close()

	a := &attempts{acknowledged: map[string]bool{}}
	if h, err := e.Health(t.Context()); err != nil || len(h.Alarms) > 0 {
		t.Errorf("before the limit the health is %+v, error %v", h, err)
	}
	// Consul lets through ten times the rate at once.
	limited := testkit.Context(t, time.Minute)
	for i := 0; log.count("limits the rate") == 0; i++ {
		if limited.Err() != nil {
			t.Fatalf("%d writes in a row met no limit", i)
		}
		a.write(t, e, fmt.Sprintf("berth/burst-%d", i))
	}
	var running sync.WaitGroup
	for w := range 16 {
		running.Go(func() {
			for i := range 3 {
				a.write(t, e, fmt.Sprintf("berth/%d-%d", w, i))
			}
		})
	}
	running.Wait()
	t.Logf("%d writes were acknowledged, %d refused", len(a.acknowledged), len(a.refused))
	if h, err := e.Health(t.Context()); err != nil || len(h.Alarms) != 1 || h.Alarms[0].Name != store.AlarmLimited {
		t.Errorf("the health is %+v, error %v, want the alarm %s", h, err, store.AlarmLimited)
	}
	if n := log.count("limits the rate"); n != 1 {
		t.Errorf("%d lines of the log name the limit, want 1 a minute", n)
	}

	// All limits stay in force: the reads wait, too.
	last := "berth/last"
	testkit.Eventually(t, time.Minute, func() error { return write(t.Context(), e, last, "1") })
	a.acknowledged[last] = true
	var listing store.Listing
	testkit.Eventually(t, time.Minute, func() (err error) {
		listing, err = e.List(t.Context(), "berth/")
		return err
	})
	there := map[string]bool{}
	for _, r := range listing.Records {
		there[r.Key] = true
	}
	if diff := cmp.Diff(a.acknowledged, there); diff != "" {
		t.Errorf("records (-acknowledged +there):\n%s", diff)
	}
	followed := map[string]bool{}
	for !followed[last] {
		batch, err := watch.Next(testkit.Context(t, time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range batch.Changes {
			followed[c.Key] = true
		}
	}
	if diff := cmp.Diff(a.acknowledged, followed); diff != "" {
		t.Errorf("records (-acknowledged +delivered by the watch):\n%s", diff)
	}
}

// attempts are the results of writes.
type attempts struct {
	mu           sync.Mutex
	acknowledged map[string]bool
	refused      []string
}

// write writes a record once, and notes the result. A refusal must be for the limit.
func (a *attempts) write(t *testing.T, e *Engine, key string) {
	err := write(t.Context(), e, key, "1")
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.acknowledged[key] = true
	case !errors.Is(err, store.ErrLimited) || errors.Is(err, store.ErrUnknown) ||
		strings.Contains(err.Error(), "quorum"):
		t.Errorf("write %s: got error %v, want that the rate is limited and nothing was written", key, err)
	default:
		a.refused = append(a.refused, key)
	}
}

// TestRefusalIsForTheLimit makes a Consul that lets nothing through, so that each call ends with the reason.
func TestRefusalIsForTheLimit(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, 1, consultest.Options{})[0]
	e := dialAs(t, reaching(s))
	if err := write(t.Context(), e, "berth/a", "1"); err != nil {
		t.Fatal(err)
	}
	s.Configure(rates(0.001, 0.001))
	testkit.Eventually(t, time.Minute, func() error {
		if err := write(t.Context(), e, "berth/a", uuid.NewString()); !errors.Is(err, store.ErrLimited) {
			return fmt.Errorf("got error %w, want that the rate is limited", err)
		}
		return nil
	})
	a := &attempts{acknowledged: map[string]bool{}}
	a.write(t, e, "berth/b")
	if len(a.refused) != 1 {
		t.Error("a write was acknowledged")
	}
	if _, err := e.Read(t.Context(), "berth/a"); !errors.Is(err, store.ErrLimited) {
		t.Errorf("a read: got error %v, want that the rate is limited", err)
	}
	s.Configure(nil)
	testkit.Eventually(t, time.Minute, func() error { return write(t.Context(), e, "berth/c", "1") })
	if _, err := e.Read(t.Context(), "berth/b"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the refused write: got error %v, want that it was never made", err)
	}
}
