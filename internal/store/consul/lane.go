package consul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/consul/api"

	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
)

// lanes are the writers of an engine. Those used last come first, so that few are used while few commits are in flight.
type lanes struct {
	conn *connection
	free chan struct{} // a value for each free lane

	mu   sync.Mutex
	idle []*lane
}

func newLanes(c *connection) *lanes {
	l := &lanes{conn: c, free: make(chan struct{}, maxLanes)}
	for range maxLanes {
		l.idle = append(l.idle, &lane{conn: c, writer: newWriter()})
		l.free <- struct{}{}
	}
	return l
}

func newWriter() string { return uuid.NewString() }

// take waits for a free lane.
func (l *lanes) take(ctx context.Context) (*lane, error) {
	wait := time.NewTimer(commitTimeout)
	defer wait.Stop()
	select {
	case <-l.free:
	case <-l.conn.lifetime.Done():
		return nil, store.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-wait.C:
		if l.conn.limits.isRecent(time.Now()) {
			return nil, fmt.Errorf("earlier commits wait: %w", store.ErrLimited)
		}
		return nil, fmt.Errorf("earlier commits wait for consul's answer: %w", store.ErrUnavailable)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.idle[len(l.idle)-1]
	l.idle = l.idle[:len(l.idle)-1]
	return last, nil
}

func (l *lanes) put(back *lane) {
	l.mu.Lock()
	l.idle = append(l.idle, back)
	l.mu.Unlock()
	l.free <- struct{}{}
}

// commit sends a transaction in a free lane, see lane.commit.
func (l *lanes) commit(ctx context.Context, o *operations) (uint64, api.TxnErrors, error) {
	taken, err := l.take(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer l.put(taken)
	return taken.commit(ctx, o)
}

// announce writes a head, so that the revision of the store exceeds the index of a write by another program.
func (l *lanes) announce(ctx context.Context) error {
	taken, err := l.take(ctx)
	if err != nil {
		return err
	}
	defer l.put(taken)
	for {
		err := taken.fence(ctx)
		if !errors.Is(err, errStale) {
			return err
		}
	}
}

// lane is a writer with one commit in flight.
type lane struct {
	conn   *connection
	writer string
	// head is the present head, as far as it is known.
	head head
	// unknown says that a write was sent and its result was lost: the head may be another.
	unknown bool
}

var (
	// errStale says that the head is another than expected.
	errStale = errors.New("the head of the log changed")
	// errNoHead says that Consul's answer lacks the new head, so that it is open what was written.
	errNoHead = errors.New("the answer of consul lacks the head of the log")
)

// commit sends a transaction, and returns the revision at which it was applied, or the failed operations. Then nothing
// was written.
func (l *lane) commit(ctx context.Context, o *operations) (uint64, api.TxnErrors, error) {
	until := time.Now().Add(commitTimeout)
	var sent []string // the ids of the attempts
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		if l.unknown {
			if err := l.load(ctx); err != nil {
				return 0, nil, l.openResult(err, len(sent) > 0)
			}
			if slices.Contains(sent, l.head.ID) {
				return l.head.index, nil, nil
			}
		}
		if err := l.conn.checkOpen(ctx); err != nil {
			return 0, nil, err
		}
		id := uuid.NewString()
		sent = append(sent, id)
		errs, err := l.send(ctx, o, id)
		switch {
		case err == nil && len(errs) == 0:
			return l.head.index, nil, nil
		case err == nil:
			return 0, errs, nil
		case errors.Is(err, errStale):
			l.unknown = true
			continue
		case errors.Is(err, store.ErrTooLarge), errors.Is(err, store.ErrInvalid):
			return 0, nil, err
		}
		switch classify(err) {
		case isDenied:
			return 0, nil, l.conn.denied(err)
		case isUnclear:
			applied, settled := l.settle(ctx, id, err)
			if settled != nil {
				return 0, nil, settled
			}
			if applied {
				return l.head.index, nil, nil
			}
		case isUnsent, isLimited, isLeaderless, isTooLarge:
		}
		// Nothing was written.
		if ended := pause.For(ctx, wait); ended != nil || time.Now().After(until) || l.conn.lifetime.Err() != nil {
			if open := l.conn.checkOpen(ctx); open != nil {
				return 0, nil, open
			}
			return 0, nil, l.conn.writeError(err)
		}
	}
}

// openResult returns the error of a commit whose head cannot be read. Once something was sent, its result is unknown.
func (l *lane) openResult(err error, isSent bool) error {
	if isSent {
		return fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
	return err
}

// load reads the head. A writer whose head is gone, or went back because Consul was restored, gets a new name: watches
// must not take its next commits for those that they have seen.
func (l *lane) load(ctx context.Context) error {
	results, errs, err := l.conn.readTogether(ctx, api.TxnOps{kvOp(api.KVGetOrEmpty, l.conn.headKey(l.writer))})
	switch {
	case err != nil:
		return err
	case len(errs) > 0:
		return fmt.Errorf("read from consul: %s: %w", errs[0].What, store.ErrUnavailable)
	case len(results) != 1:
		return l.conn.denied(errFiltered)
	}
	found, p := head{}, results[0].KV
	if p.CreateIndex > 0 {
		if err := json.Unmarshal(p.Value, &found); err != nil {
			return fmt.Errorf("%s in consul is not readable: %w: %w", p.Key, store.ErrUnavailable, err)
		}
		found.index = p.ModifyIndex
	}
	if found.index < l.head.index {
		found, l.writer = head{}, newWriter()
	}
	l.head, l.unknown = found, false
	return nil
}

// send sends a transaction once, with an id.
func (l *lane) send(ctx context.Context, o *operations, id string) (api.TxnErrors, error) {
	next := head{First: max(l.head.First, 1), Last: l.head.Last + 1, Fences: l.head.Fences, ID: id}
	made, err := entryOf(next.Last, o)
	if err != nil {
		return nil, err
	}
	value, err := json.Marshal(made)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	if !made.Whole && !made.Foreign {
		next.Keys = keysOfHead(o.keys)
	}
	write := kvOp(api.KVSet, l.conn.entryKey(l.writer, next.Last))
	write.KV.Value = value
	return l.write(ctx, next, append(slices.Clip(o.ops), write))
}

// write sends operations together with a new head. It returns errStale if the head is another than the one that the
// lane knows.
func (l *lane) write(ctx context.Context, next head, ops api.TxnOps) (api.TxnErrors, error) {
	value, err := json.Marshal(next)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	write := kvOp(api.KVCAS, l.conn.headKey(l.writer))
	write.KV.Value, write.KV.Index = value, l.head.index
	bounded, cancel := l.conn.bound(ctx, writeTimeout)
	defer cancel()
	client, number := l.conn.client()
	ok, response, _, err := client.Txn().Txn(append(slices.Clip(ops), write), l.conn.query(bounded))
	if err != nil {
		if classify(err) == isTooLarge {
			return nil, fmt.Errorf("%w: %w", store.ErrTooLarge, err)
		}
		l.conn.failed(number, err)
		return nil, err
	}
	if !ok {
		if err := deniedError(response.Errors); err != nil {
			return nil, err
		}
		for _, failed := range response.Errors {
			if failed.OpIndex == len(ops) {
				return nil, errStale
			}
		}
		return response.Errors, nil
	}
	for _, r := range response.Results {
		if r.KV != nil && r.KV.Key == l.conn.headKey(l.writer) {
			next.index = r.KV.ModifyIndex
		}
	}
	if next.index == 0 {
		return nil, errNoHead
	}
	l.head = next
	return nil, nil
}

// fence writes the head without a commit. Afterwards no commit that was sent before can be applied. It returns errStale
// if one was applied meanwhile.
func (l *lane) fence(ctx context.Context) error {
	if l.unknown {
		if err := l.load(ctx); err != nil {
			return err
		}
	}
	next := l.head
	next.First, next.Fences, next.ID = max(next.First, 1), next.Fences+1, uuid.NewString()
	_, err := l.write(ctx, next, nil)
	l.unknown = err != nil
	if err != nil && !errors.Is(err, errStale) {
		return l.conn.writeError(err)
	}
	return err
}

// settle finds out whether the commit of an id was applied, after an error that leaves it open. If it was not, it never
// will be. The error wraps store.ErrUnknown if that could not be found out.
func (l *lane) settle(ctx context.Context, id string, cause error) (applied bool, err error) {
	l.unknown = true
	bounded, cancel := l.conn.bound(ctx, settleTimeout)
	defer cancel()
	before := l.head.index
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		err := l.load(bounded)
		switch {
		case err == nil && l.head.ID == id:
			return true, nil
		case err == nil && l.head.index != before: // the commit compares another head
			return false, nil
		case err == nil:
			if err = l.fence(bounded); err == nil {
				return false, nil
			}
		}
		if pause.For(bounded, wait) != nil {
			unknown := fmt.Errorf("%w: %w", store.ErrUnknown, cause)
			if isFull(cause) || isFull(err) {
				unknown = fmt.Errorf("%w: %w", store.ErrNoSpace, unknown)
			}
			return false, unknown
		}
	}
}
