package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/testkit"
)

// Trial runs clients against one engine that is killed during the calls.
type Trial struct {
	// Engine stays usable after kills. Its calls may block while it is down.
	Engine store.Engine
	// Kill ends the engine without warning and brings it back.
	Kill func()
	// Clients run concurrently and make Steps calls each. Kills are spread over the calls.
	Clients, Steps, Kills int
	Seed                  uint64
}

// Several makes each call of a trial on the next of several engines. Its other calls are not available.
type Several struct {
	store.Engine
	Engines []store.Engine
	next    atomic.Uint64
}

func (s *Several) one() store.Engine { return s.Engines[int(s.next.Add(1))%len(s.Engines)] }

// Read is part of store.Engine.
func (s *Several) Read(ctx context.Context, key string) (store.Record, error) {
	return s.one().Read(ctx, key)
}

// List is part of store.Engine.
func (s *Several) List(ctx context.Context, prefix string) (store.Listing, error) {
	return s.one().List(ctx, prefix)
}

// Commit is part of store.Engine.
func (s *Several) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	return s.one().Commit(ctx, groups)
}

// contended is the number of keys of a trial: small, so that clients conflict.
const contended = 4

func lineKey(i int) string { return fmt.Sprintf("line/%d", i) }

// call is the input of a client's call: a commit, if it has groups, or a read of one key or of all keys.
type call struct {
	groups []lineGroup
	key    int  // the key of a read; contended reads all keys
	end    bool // marks the end of the history, after all calls
}

// lineGroup is a group in terms of values. Each value is written once in a trial, so a compare of the revision equals a
// compare of the value.
type lineGroup struct {
	compares map[int]string // "" requires that there is no record
	writes   map[int]string // "" deletes
}

// answer is the output of a client's call.
type answer struct {
	unknown bool // a commit that may be applied at any time after the call, or never
	applied []bool
	values  [contended]string // the values that a read returned
}

// Run lets the clients call and returns the history. It leaves out calls that certainly were not applied and reads
// without an answer.
func (trial Trial) Run(ctx context.Context) ([]porcupine.Operation, error) {
	r := &recorder{trial: trial, revisions: map[string]uint64{}}
	var running sync.WaitGroup
	tick := make(chan struct{})
	for id := range trial.Clients {
		running.Go(func() {
			c := &lineClient{
				r: r, id: id, known: map[int]store.Record{},
				random: rand.New(rand.NewPCG(trial.Seed, uint64(id))),
			}
			for range trial.Steps {
				c.step(ctx)
				tick <- struct{}{}
			}
		})
	}
	total := trial.Clients * trial.Steps
	for done := 1; done <= total; done++ {
		<-tick
		if every := total / (trial.Kills + 1); done%every == 0 && done/every <= trial.Kills {
			running.Go(trial.Kill)
		}
	}
	running.Wait()
	return r.history, r.err
}

// recorder collects the calls of all clients, on one logical clock.
type recorder struct {
	trial Trial
	clock atomic.Int64

	mu        sync.Mutex
	history   []porcupine.Operation
	revisions map[string]uint64 // the revision of each value that was read, by key and value
	err       error
}

func (r *recorder) add(op porcupine.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, op)
}

// checkRevision checks that a value always has the same revision, since the model knows only values.
func (r *recorder) checkRevision(record store.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := record.Key + "=" + string(record.Value)
	if known, seen := r.revisions[id]; seen && known != record.Modified {
		r.err = fmt.Errorf("%s was read at revisions %d and %d", id, known, record.Modified)
	}
	r.revisions[id] = record.Modified
}

// fail records a fault that no order of the calls could explain.
func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// lineClient is one client, with the last record that it read of each key.
type lineClient struct {
	r      *recorder
	id     int
	random *rand.Rand
	known  map[int]store.Record // Modified 0: read as absent
	wrote  int
}

func (c *lineClient) step(ctx context.Context) {
	switch n := c.random.IntN(10); {
	case n < 2:
		c.list(ctx)
	case n < 5:
		c.read(ctx, c.random.IntN(contended))
	default:
		c.commit(ctx)
	}
}

func (c *lineClient) read(ctx context.Context, key int) {
	called := c.r.clock.Add(1)
	record, err := c.r.trial.Engine.Read(ctx, lineKey(key))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return
	}
	var got answer
	got.values[key] = string(record.Value)
	c.known[key] = record
	c.done(call{key: key}, called, got)
	if err == nil {
		c.r.checkRevision(record)
	}
}

func (c *lineClient) list(ctx context.Context) {
	called := c.r.clock.Add(1)
	listing, err := c.r.trial.Engine.List(ctx, "line/")
	if err != nil {
		return
	}
	var got answer
	clear(c.known)
	for key := range contended {
		c.known[key] = store.Record{}
	}
	for _, record := range listing.Records {
		key, err := strconv.Atoi(strings.TrimPrefix(record.Key, "line/"))
		if err != nil || key >= contended {
			c.r.fail(fmt.Errorf("a key that was never written: %q", record.Key))
			return
		}
		got.values[key] = string(record.Value)
		c.known[key] = record
		c.r.checkRevision(record)
	}
	c.done(call{key: contended}, called, got)
}

// commit writes two to four keys in one group or two. Most groups compare the last record that the client read of a
// key.
func (c *lineClient) commit(ctx context.Context) {
	keys := c.random.Perm(contended)
	groups := make([]store.Group, 1+c.random.IntN(2))
	asked := make([]lineGroup, len(groups))
	for i := range groups {
		asked[i] = lineGroup{compares: map[int]string{}, writes: map[int]string{}}
		for range 1 + c.random.IntN(2) {
			if record, known := c.known[keys[0]]; known && c.random.IntN(10) > 0 {
				groups[i].Compares = append(groups[i].Compares,
					store.Compare{Key: lineKey(keys[0]), Modified: record.Modified})
				asked[i].compares[keys[0]] = string(record.Value)
			}
			op := store.Op{Key: lineKey(keys[0]), Delete: c.random.IntN(8) == 0}
			if !op.Delete {
				c.wrote++
				op.Value = fmt.Appendf(nil, "%d.%d", c.id, c.wrote)
			}
			groups[i].Ops = append(groups[i].Ops, op)
			asked[i].writes[keys[0]] = string(op.Value)
			keys = keys[1:]
		}
	}
	called := c.r.clock.Add(1)
	result, err := c.r.trial.Engine.Commit(ctx, groups)
	switch {
	case err == nil:
		c.done(call{groups: asked}, called, answer{applied: result.Applied})
		for i, applied := range result.Applied { // the client knows the records that it wrote
			for key, value := range asked[i].writes {
				delete(c.known, key)
				if applied && value != "" {
					record := store.Record{Key: lineKey(key), Value: []byte(value), Modified: result.Revision}
					c.known[key] = record
					c.r.checkRevision(record)
				}
			}
		}
	case errors.Is(err, store.ErrUnknown):
		c.r.add(porcupine.Operation{
			ClientId: c.id, Input: call{groups: asked}, Call: called,
			Output: answer{unknown: true}, Return: math.MaxInt64,
		})
		clear(c.known)
	}
}

func (c *lineClient) done(asked call, called int64, got answer) {
	c.r.add(porcupine.Operation{ClientId: c.id, Input: asked, Call: called, Output: got, Return: c.r.clock.Add(1)})
}

// line is the model: the values of the keys, "" for absent keys.
type line struct {
	values [contended]string
	ended  bool
}

func model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return line{} },
		Step: func(state, input, output any) (bool, any) {
			from, ok := state.(line)
			if !ok {
				return false, state
			}
			return from.step(callAndAnswer(porcupine.Operation{Input: input, Output: output}))
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
	}
}

// step reports whether a call could have this answer, and returns the state after it. An unknown commit counts only
// where it changes something. A commit that changes nothing, or was never applied, is placed after the end of the
// history. The result is equivalent, and the search does not have to try all positions without an effect.
func (l line) step(asked call, got answer) (bool, line) {
	switch {
	case asked.end:
		l.ended = true
		return true, l
	case got.unknown && l.ended:
		return true, l
	case asked.groups == nil && asked.key < contended:
		return l.values[asked.key] == got.values[asked.key], l
	case asked.groups == nil:
		return l.values == got.values, l
	}
	next := l
	for i, g := range asked.groups {
		holds := true
		for key, value := range g.compares {
			holds = holds && l.values[key] == value
		}
		if !got.unknown && holds != got.applied[i] {
			return false, l
		}
		if holds {
			for key, value := range g.writes {
				next.values[key] = value
			}
		}
	}
	return !got.unknown || next != l, next
}

// callAndAnswer returns the input and the output of a history's entry.
func callAndAnswer(op porcupine.Operation) (call, answer) {
	asked, _ := op.Input.(call)
	got, _ := op.Output.(answer)
	return asked, got
}

// Explain searches an order of a history's calls in which one copy of the data gives the same answers. Each call takes
// effect between its beginning and its end. An unknown commit may take effect at any time after its beginning. If a
// read saw one of its values, it took effect before the end of that read.
func Explain(history []porcupine.Operation, limit time.Duration) porcupine.CheckResult {
	seen := map[string]int64{} // the end of the first read of each value
	last := int64(0)
	for _, op := range history {
		_, got := callAndAnswer(op)
		if got.unknown {
			continue
		}
		last = max(last, op.Return)
		for key, value := range got.values {
			id := lineKey(key) + value
			if first, known := seen[id]; value != "" && (!known || op.Return < first) {
				seen[id] = op.Return
			}
		}
	}
	whole := slices.Clone(history)
	for i, op := range whole {
		asked, got := callAndAnswer(op)
		if !got.unknown {
			continue
		}
		for _, g := range asked.groups {
			for key, value := range g.writes {
				if first, known := seen[lineKey(key)+value]; value != "" && known {
					whole[i].Return = min(whole[i].Return, first)
				}
			}
		}
	}
	whole = append(whole, porcupine.Operation{
		Input: call{end: true}, Call: last + 1, Output: answer{},
		Return: last + 2,
	})
	return porcupine.CheckOperationsTimeout(model(), whole, limit)
}

// Linearizable fails the test if one of several histories has no explanation. The search can be long where many results
// are unknown. It is given up after the limit, which may happen to one history of five. The limit is for an idle
// machine of usual speed, see testkit.Scaled. Linearizable must run outside of a synctest bubble, where the limit would
// never pass.
func Linearizable(t *testing.T, histories [][]porcupine.Operation, limit time.Duration) {
	t.Helper()
	undecided := 0
	for i, history := range histories {
		began := time.Now()
		got := Explain(history, testkit.Scaled(limit))
		t.Logf("history %d, %s: %s after %v", i, describe(history), got, time.Since(began).Round(time.Millisecond))
		switch got {
		case porcupine.Illegal:
			t.Errorf("history %d has no explanation", i)
		case porcupine.Unknown:
			undecided++
		}
	}
	if undecided*5 > len(histories) {
		t.Errorf("%d of %d histories are undecided", undecided, len(histories))
	}
}

// describe returns the numbers of calls and results of a history.
func describe(history []porcupine.Operation) string {
	var commits, applied, unknown int
	for _, op := range history {
		asked, got := callAndAnswer(op)
		if asked.groups != nil {
			commits++
		}
		if got.unknown {
			unknown++
		}
		if strings.Contains(fmt.Sprint(got.applied), "true") {
			applied++
		}
	}
	return fmt.Sprintf("%d calls, %d commits, %d applied in whole or in part, %d unknown", len(history), commits,
		applied, unknown)
}
