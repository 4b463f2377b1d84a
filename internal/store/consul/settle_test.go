package consul

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/testkit"
)

// relay stands between an engine and Consul, and loses answers.
type relay struct {
	t      *testing.T
	server *consultest.Server

	mu   sync.Mutex
	next string // what happens to the next commit: "", "lose its answer", "deliver it late" or "deliver it soon"
	soon time.Duration
	// beforeTxn, unless nil, is called before the transactions of a number.
	beforeTxn func(number int)
	txns      int
	late      []chan struct{}
	onLate    func() // unless nil, it is called when a commit is kept back
	status    []int  // of the late deliveries
}

// loseNext chooses what happens to the next commit.
func (r *relay) loseNext(how string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = how
}

// ServeHTTP is part of http.Handler.
func (r *relay) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		r.t.Error(err)
	}
	r.mu.Lock()
	how := ""
	if strings.Contains(string(body), `"Verb":"set","Key":"berth/`) {
		how, r.next = r.next, ""
	}
	r.mu.Unlock()
	if how == "deliver the late one, and not this" {
		r.deliverLate()
		panic(http.ErrAbortHandler)
	}
	if how == "deliver it soon" {
		time.AfterFunc(r.soon, func() {
			if answer := r.forward(r.t.Context(), request, body); answer != nil {
				answer.Body.Close()
			}
		})
		panic(http.ErrAbortHandler)
	}
	if how == "deliver it late" {
		deliver := make(chan struct{})
		r.mu.Lock()
		r.late = append(r.late, deliver)
		if r.onLate != nil {
			r.onLate()
		}
		r.mu.Unlock()
		go func() {
			select {
			case <-deliver:
			case <-r.t.Context().Done():
				return
			}
			answer := r.forward(r.t.Context(), request, body)
			if answer == nil {
				return
			}
			answer.Body.Close()
			r.mu.Lock()
			defer r.mu.Unlock()
			r.status = append(r.status, answer.StatusCode)
		}()
		panic(http.ErrAbortHandler) // closes the connection
	}
	if r.beforeTxn != nil && request.Method == http.MethodPut {
		r.mu.Lock()
		r.txns++
		number := r.txns
		r.mu.Unlock()
		r.beforeTxn(number)
	}
	answer := r.forward(request.Context(), request, body)
	if answer == nil {
		panic(http.ErrAbortHandler)
	}
	defer answer.Body.Close()
	if how == "lose its answer" {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body)
}

// deliverLate delivers the late commits and waits until Consul has answered them.
func (r *relay) deliverLate() {
	r.mu.Lock()
	for _, deliver := range r.late[len(r.status):] {
		close(deliver)
	}
	r.mu.Unlock()
	testkit.Eventually(r.t, 10*time.Second, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.status) < len(r.late) {
			return fmt.Errorf("%d of %d late commits arrived", len(r.status), len(r.late))
		}
		return nil
	})
}

func (r *relay) forward(ctx context.Context, request *http.Request, body []byte) *http.Response {
	target := "http://" + r.server.Address + request.URL.RequestURI()
	again, err := http.NewRequestWithContext(ctx, request.Method, target, bytes.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return nil
	}
	again.Header = request.Header.Clone()
	answer, err := http.DefaultClient.Do(again)
	if err != nil {
		return nil // the engine ended the request
	}
	return answer
}

// TestLostAnswers loses the answers of commits. Each is settled, and applied once: also one that arrives late at Consul
// does not come after a newer write.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	r := &relay{t: t, server: consultest.Start(t, 1, consultest.Options{})[0]}
	front := httptest.NewServer(r)
	defer front.Close()
	config := reaching(r.server)
	config.Endpoints = []string{front.URL}
	e := dialAs(t, config)
	group := func(value int, modified uint64) []store.Group {
		return []store.Group{{
			Compares: []store.Compare{{Key: "berth/k", Modified: modified}},
			Ops:      []store.Op{{Key: "berth/k", Value: fmt.Append(nil, value)}},
		}}
	}
	last := uint64(0)
	for i, how := range []string{"lose its answer", "deliver it late", "lose its answer", "", "deliver it late"} {
		r.loseNext(how)
		result, err := e.Commit(t.Context(), group(i, last))
		if err != nil || !result.Applied[0] {
			t.Fatalf("%q: got %+v, error %v", how, result, err)
		}
		record, err := e.Read(t.Context(), "berth/k")
		if err != nil || record.Modified != result.Revision || string(record.Value) != fmt.Sprint(i) {
			t.Fatalf("%q: the record is %+v, error %v, after %+v", how, record, err, result)
		}
		last = result.Revision
	}
	// The commit arrives while the engine finds out whether it arrived.
	for i := range 30 {
		r.soon = time.Duration(i) * 2 * time.Millisecond
		r.loseNext("deliver it soon")
		result, err := e.Commit(t.Context(), group(100+i, last))
		if err != nil || !result.Applied[0] {
			t.Fatalf("delivered after %v: got %+v, error %v", r.soon, result, err)
		}
		record, err := e.Read(t.Context(), "berth/k")
		if err != nil || record.Modified != result.Revision {
			t.Fatalf("delivered after %v: the record is %+v, error %v, after %+v", r.soon, record, err, result)
		}
		last = result.Revision
	}
	r.deliverLate()
	for _, status := range r.status {
		if status != http.StatusConflict {
			t.Errorf("a late commit got status %d, want 409", status)
		}
	}
	if record, err := e.Read(t.Context(), "berth/k"); err != nil || record.Modified != last {
		t.Errorf("after the late commits: got %+v, error %v, want revision %d", record, err, last)
	}
}

// TestLostAnswerAfterAnUnknownResult ends the context of a commit whose answer is lost. It arrives at Consul in place
// of the next commit of its lane, whose request is lost: that one is not taken for it.
func TestLostAnswerAfterAnUnknownResult(t *testing.T) {
	t.Parallel()
	r := &relay{t: t, server: consultest.Start(t, 1, consultest.Options{})[0]}
	front := httptest.NewServer(r)
	defer front.Close()
	config := reaching(r.server)
	config.Endpoints = []string{front.URL}
	e := dialAs(t, config)
	for round := range 3 {
		r.loseNext("deliver it late")
		ended, cancel := context.WithCancel(t.Context())
		r.mu.Lock()
		r.onLate = cancel
		r.mu.Unlock()
		err := write(ended, e, "berth/first", fmt.Sprint(round))
		if !errors.Is(err, store.ErrUnknown) {
			t.Fatalf("a commit whose context ended: got error %v, want ErrUnknown", err)
		}
		r.loseNext("deliver the late one, and not this")
		want := fmt.Sprint(round)
		result, err := e.Commit(t.Context(), []store.Group{{Ops: []store.Op{
			{Key: "berth/second", Value: []byte(want)},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		both, err := e.ReadTogether(t.Context(), "berth/first", "berth/second")
		if err != nil || string(both[0].Value) != want || string(both[1].Value) != want ||
			both[1].Modified != result.Revision || r.status[round] != http.StatusOK {
			t.Errorf("round %d: got %+v, error %v, after a commit at %d; the late one got status %d", round, both, err,
				result.Revision, r.status[round])
		}
	}
}

// TestGroupsAreDecidedTogether has another client change what refused a group, at each moment of a call with two
// groups. The groups are decided at one state: the second is applied alone only before that change.
func TestGroupsAreDecidedTogether(t *testing.T) {
	t.Parallel()
	r := &relay{t: t, server: consultest.Start(t, 1, consultest.Options{})[0]}
	other := dialAs(t, reaching(r.server))
	front := httptest.NewServer(r)
	defer front.Close()
	config := reaching(r.server)
	config.Endpoints = []string{front.URL}
	e := dialAs(t, config)
	for moment := 1; moment <= 4; moment++ {
		if err := write(t.Context(), other, "berth/a", "1"); err != nil {
			t.Fatal(err)
		}
		if err := write(t.Context(), e, "berth/warm", fmt.Sprint(moment)); err != nil {
			t.Fatal(err)
		}
		changed := uint64(0)
		r.mu.Lock()
		r.txns = 0
		r.beforeTxn = func(number int) {
			if number != moment {
				return
			}
			result, err := other.Commit(t.Context(), []store.Group{{Ops: []store.Op{{Key: "berth/a", Delete: true}}}})
			if err != nil {
				t.Error(err)
			}
			changed = result.Revision
		}
		r.mu.Unlock()
		result, err := e.Commit(t.Context(), []store.Group{
			{Compares: []store.Compare{{Key: "berth/a"}}, Ops: []store.Op{{Key: "berth/first", Value: []byte("1")}}},
			{Ops: []store.Op{{Key: "berth/second", Value: fmt.Append(nil, moment)}}},
		})
		r.mu.Lock()
		r.beforeTxn = nil
		r.mu.Unlock()
		if err != nil || !result.Applied[1] {
			t.Fatalf("moment %d: got %+v, error %v", moment, result, err)
		}
		if holds := changed > 0 && changed < result.Revision; result.Applied[0] != holds {
			t.Errorf("moment %d: the change was at %d, the call at %d, and the first group was applied: %v", moment,
				changed, result.Revision, result.Applied[0])
		}
	}
}

// TestRemovedWriters removes the log of a writer that is gone. A watch that has seen all of its commits needs no
// resync, and one that has not gets one. A writer that was only idle begins again.
func TestRemovedWriters(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, 1, consultest.Options{})[0]
	idle, e := dialAs(t, reaching(s)), dialAs(t, reaching(s))
	if err := write(t.Context(), idle, "berth/a", "1"); err != nil {
		t.Fatal(err)
	}
	next := func(w store.Watch) store.Batch {
		t.Helper()
		batch, err := w.Next(testkit.Context(t, 20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		return batch
	}
	quick, slow := e.Watch(t.Context(), "berth/", 0), e.Watch(t.Context(), "berth/", 0)
	defer quick.Close()
	defer slow.Close()
	next(quick)
	next(slow)
	if err := write(t.Context(), idle, "berth/a", "2"); err != nil {
		t.Fatal(err)
	}
	if b := next(quick); b.Resync || len(b.Changes) != 1 {
		t.Fatalf("a change: got %+v", b)
	}
	present, err := e.readHeads(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen, began := map[string]seenWriter{}, time.Now()
	if gone := idleWriters(seen, present, began); len(gone) > 0 {
		t.Errorf("writers %v are gone at the first sight", gone)
	}
	if gone := idleWriters(seen, present, began.Add(idleLimit)); len(gone) > 0 {
		t.Errorf("writers %v are gone too early", gone)
	}
	gone := idleWriters(seen, present, began.Add(idleLimit+time.Second))
	if len(gone) != 2 {
		t.Fatalf("%v are gone, want two writers", gone)
	}
	if err := e.removeWriters(t.Context(), present, gone); err != nil {
		t.Fatal(err)
	}
	if left, _, err := s.Client().KV().Keys(logPrefix, "", nil); err != nil || len(left) != 1 {
		t.Errorf("left of the log: %v, error %v", left, err)
	}
	if err := write(t.Context(), idle, "berth/a", "3"); err != nil {
		t.Fatal(err)
	}
	for changes := 0; changes == 0; {
		b := next(quick)
		if changes = len(b.Changes); b.Resync {
			t.Errorf("a watch that had seen all got a resync: %+v", b)
		}
	}
	for value := ""; value != "3"; {
		for _, c := range next(slow).Changes {
			value = string(c.Value)
		}
	}
	revision, err := e.Revision(t.Context(), "berth/")
	if err != nil || revision < present.revision {
		t.Errorf("revision %d, error %v, want at least %d", revision, err, present.revision)
	}
}

// TestModelHasTheLimits compares the limits of the driver with those of the model, which the simulator uses.
func TestModelHasTheLimits(t *testing.T) {
	if got, want := memory.ConsulLimits(), commitLimits(); got != want {
		t.Errorf("the model has %+v, want %+v", got, want)
	}
}
