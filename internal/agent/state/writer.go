package state

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
)

// QueueAttempt writes the attempt soon. A later change of the same attempt replaces a queued one.
func (s *Store) QueueAttempt(r *attempt.Record) { s.put(bucketAttempts, r.Desired.UUID, r, nil) }

// CommitAttempt writes the attempt; the channel gets nil once it is durable. After an error its durability is unknown,
// and it stays queued. The record may change as soon as CommitAttempt has returned.
func (s *Store) CommitAttempt(r *attempt.Record) <-chan error {
	done := make(chan error, 1)
	if !s.keeps() {
		done <- nil
		return done
	}
	s.put(bucketAttempts, r.Desired.UUID, r, done)
	return done
}

// ForgetAttempt deletes the attempt soon.
func (s *Store) ForgetAttempt(uuid string) { s.put(bucketAttempts, uuid, nil, nil) }

// QueueDefinition writes the definition soon: before any attempt that is queued later.
func (s *Store) QueueDefinition(d *cluster.TaskDefinition) {
	s.put(bucketDefinitions, d.Ref().String(), d, nil)
}

// ForgetDefinition deletes the definition soon.
func (s *Store) ForgetDefinition(ref cluster.Ref) {
	s.put(bucketDefinitions, ref.String(), nil, nil)
}

// QueueMark writes the highest token and session soon.
func (s *Store) QueueMark(m Mark) { s.put(bucketAgent, keyMark, m, nil) }

// put queues one value, nil to delete, and sends the result of the write to done.
func (s *Store) put(bucket, name string, value any, done chan error) {
	if !s.keeps() {
		return
	}
	var b []byte
	if value != nil {
		var err error
		if b, err = json.Marshal(value); err != nil {
			sendResult(done, fmt.Errorf("encode %s of %q: %w", bucket, name, err))
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.abandoned {
		sendResult(done, ErrClosed)
		return
	}
	s.pending[key{bucket, name}] = b
	if done != nil {
		s.waiters = append(s.waiters, done)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Abandon makes the store lose all queued and later changes, like a crash. It is for tests.
func (s *Store) Abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandoned = true
	clear(s.pending)
}

func sendResult(done chan error, err error) {
	if done != nil {
		done <- err
	}
}

// Run writes queued changes until ctx ends; then it writes the rest and closes the file.
func (s *Store) Run(ctx context.Context) error {
	if !s.keeps() {
		<-ctx.Done()
		return nil
	}
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return s.Close()
		case <-s.wake:
		case <-retry:
		}
		retry = nil
		if s.flush() != nil {
			retry = time.After(retryAfter)
		}
	}
}

// Close writes queued changes and closes the file. It is for a store without Run.
func (s *Store) Close() error {
	if !s.keeps() {
		return nil
	}
	err := s.flush()
	s.mu.Lock()
	s.closed = true
	for _, w := range s.waiters {
		w <- ErrClosed
	}
	s.waiters = nil
	s.mu.Unlock()
	if s.db != nil {
		if e := s.db.Close(); err == nil {
			err = e
		}
	}
	if err != nil {
		return fmt.Errorf("close the agent's state: %w", err)
	}
	return nil
}

// flush writes all queued changes in one transaction.
func (s *Store) flush() error {
	s.mu.Lock()
	batch, waiters := s.pending, s.waiters
	s.pending, s.waiters = map[key][]byte{}, nil
	s.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	err := s.save(batch)
	if err != nil {
		err = fmt.Errorf("write the agent's state: %w", explain(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		for k, v := range batch {
			if _, newer := s.pending[k]; !newer {
				s.pending[k] = v
			}
		}
	}
	for _, w := range waiters {
		w <- err
	}
	switch {
	case err != nil && !s.failed:
		s.log.Error("the agent's state cannot be written; tasks continue, new ones wait", "error", err)
	case err == nil && s.failed:
		s.log.Info("the agent's state is written again")
	}
	s.failed = err != nil
	return err
}

// keeps reports whether the store keeps anything.
func (s *Store) keeps() bool { return s.db != nil || s.mem != nil }

// save makes a batch durable.
func (s *Store) save(batch map[key][]byte) error {
	if s.mem != nil {
		return s.mem.write(batch)
	}
	return guard(func() error { return s.db.Update(func(tx *bbolt.Tx) error { return write(tx, batch) }) })
}

func write(tx *bbolt.Tx, batch map[key][]byte) error {
	for k, v := range batch {
		b := tx.Bucket([]byte(k.bucket))
		var err error
		if v == nil {
			err = b.Delete([]byte(k.name))
		} else {
			err = b.Put([]byte(k.name), v)
		}
		if err != nil {
			return fmt.Errorf("%s of %q: %w", k.bucket, k.name, err)
		}
	}
	return nil
}

// Failed reports whether the last write failed.
func (s *Store) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}
