package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"go.etcd.io/bbolt"

	"github.com/berthd/berth/internal/agent/attempt"
)

// Transfer prepares the file of an ended agent for another owner of the node (P7.2). The attempts lose the numbers of
// the plans that placed them, which mean nothing in another store, and the addresses of the former servers are
// forgotten. The token and the session stay: the next owner's are higher. All is one transaction. A call with the
// number of the last change, or with 0, changes nothing.
func Transfer(path string, number uint64, log *slog.Logger) error {
	if number == 0 {
		return nil
	}
	s, err := Open(path, log)
	if err != nil {
		return err
	}
	err = guard(func() error {
		return s.db.Update(func(tx *bbolt.Tx) error { return transfer(tx, number) })
	})
	if closed := s.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("prepare the agent's state for another owner: %w", err)
	}
	return nil
}

func transfer(tx *bbolt.Tx, number uint64) error {
	agent, attempts := tx.Bucket([]byte(bucketAgent)), tx.Bucket([]byte(bucketAttempts))
	var mark Mark
	if b := agent.Get([]byte(keyMark)); b != nil {
		if err := json.Unmarshal(b, &mark); err != nil {
			return fmt.Errorf("%w: the token: %w", ErrCorrupt, err)
		}
	}
	if mark.Handover == number {
		return nil
	}
	changed := map[string][]byte{}
	err := attempts.ForEach(func(k, v []byte) error {
		r, err := decode[attempt.Record](v)
		if err != nil {
			return fmt.Errorf("%s of %q: %w", bucketAttempts, k, err)
		}
		r.Desired.Plan = 0
		changed[string(k)], err = json.Marshal(r)
		return err
	})
	if err != nil {
		return err
	}
	for uuid, value := range changed { // order-free: each on its own
		if err := attempts.Put([]byte(uuid), value); err != nil {
			return err
		}
	}
	mark.Handover, mark.Servers = number, nil
	value, err := json.Marshal(mark)
	if err != nil {
		return err
	}
	return agent.Put([]byte(keyMark), value)
}

// Servers returns the addresses of servers in the file of an ended agent.
func Servers(path string, log *slog.Logger) ([]string, error) {
	s, err := Open(path, log)
	if err != nil {
		return nil, err
	}
	saved, err := s.Load()
	return saved.Mark.Servers, errors.Join(err, s.Close())
}
