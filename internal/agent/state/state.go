// Package state stores what an agent needs after a restart, in a file on the node's disk.
//
// The file holds the node's attempts, their definitions, and the highest token and session that the agent has seen. One
// writer writes all queued changes in one transaction, so a thousand changes cost one flush of the disk. A change that
// must be durable before the agent acts on it is committed: Commit returns once it is durable.
//
// A full or failing disk does not stop the agent. Queued changes stay queued, with the newest value of each, until the
// disk takes them; Commit reports the error to its caller.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
)

// Errors of Open, each with a remedy for the operator.
var (
	ErrLocked  = errors.New("another agent uses it: end that one, or give this one another --data-dir")
	ErrCorrupt = errors.New("it is damaged; move it away and restart the agent: running tasks are kept")
	ErrNoWrite = errors.New("it cannot be written")
	ErrClosed  = errors.New("the agent's state is closed")
)

// Buckets and keys of the file. Values are JSON.
const (
	bucketAgent       = "agent"
	bucketAttempts    = "attempts"
	bucketDefinitions = "definitions"
	bucketCounters    = "counters"
	keyMark           = "mark"
)

// lockWait is how long Open waits for another process to release the file.
const lockWait = 2 * time.Second

// retryAfter is how long the writer waits after a failed write.
const retryAfter = time.Second

// Mark holds the highest token and session that the agent has seen.
type Mark struct {
	Token   cluster.Token `json:"token"`
	Session uint64        `json:"session"`
	// Servers are the server addresses that a server sent last.
	Servers []string `json:"servers,omitempty"`
	// Handover is the number of the last change of the node's owner that Transfer has prepared the file for.
	Handover uint64 `json:"handover,omitempty"`
}

// Saved is the content of the file.
type Saved struct {
	Mark        Mark
	Attempts    []*attempt.Record
	Definitions []*cluster.TaskDefinition
	Counters    []*Counters
}

// Store is the open file. Its methods may be called concurrently.
type Store struct {
	db  *bbolt.DB // nil: nothing is kept, or it is kept in memory
	mem *life     // of a Memory, or nil
	log *slog.Logger

	mu      sync.Mutex
	pending map[key][]byte // nil value: delete
	waiters []chan error
	failed  bool // the last write failed, which was logged
	closed  bool
	// abandoned stops all writes.
	abandoned bool
	wake      chan struct{}
}

type key struct{ bucket, name string }

// Open opens the file, and creates it if it is missing. An empty path gives a store that keeps nothing, for agents of
// simulations. The errors wrap those above where one fits.
func Open(path string, log *slog.Logger) (*Store, error) {
	s := &Store{log: log, pending: map[key][]byte{}, wake: make(chan struct{}, 1)}
	if path == "" {
		return s, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open the agent's state %s: %w: %w", path, ErrNoWrite, err)
	}
	err := guard(func() (err error) {
		s.db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait})
		if err != nil {
			return err
		}
		return s.prepare(path)
	})
	if err != nil {
		if s.db != nil {
			_ = guard(s.db.Close) // the first error is more useful
		}
		return nil, fmt.Errorf("open the agent's state %s: %w", path, explain(err))
	}
	return s, nil
}

// prepare creates the buckets after checking that the file has its stated length.
func (s *Store) prepare(path string) error {
	var want int64
	if err := s.db.View(func(tx *bbolt.Tx) error { want = tx.Size(); return nil }); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() < want {
		return fmt.Errorf("%w: it has %d bytes, want %d", ErrCorrupt, info.Size(), want)
	}
	return s.db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{bucketAgent, bucketAttempts, bucketDefinitions, bucketCounters} {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
}

// explain adds the matching sentinel error.
func explain(err error) error {
	switch {
	case errors.Is(err, ErrCorrupt):
		return err
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("%w: %w", ErrLocked, err)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum),
		errors.Is(err, berrors.ErrVersionMismatch):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: %w", ErrNoWrite, err)
	}
	return err
}

// guard runs f and turns a panic, or a fault of the mapped file, into ErrCorrupt: the library panics on damaged pages.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	return f()
}

// Load reads the whole file.
func (s *Store) Load() (saved Saved, err error) {
	if s.mem != nil {
		return s.mem.load()
	}
	if s.db == nil {
		return saved, nil
	}
	err = guard(func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			if b := tx.Bucket([]byte(bucketAgent)).Get([]byte(keyMark)); b != nil {
				if err := json.Unmarshal(b, &saved.Mark); err != nil {
					return fmt.Errorf("%w: the token: %w", ErrCorrupt, err)
				}
			}
			if err := each(tx, bucketAttempts, &saved.Attempts); err != nil {
				return err
			}
			if err := each(tx, bucketDefinitions, &saved.Definitions); err != nil {
				return err
			}
			return each(tx, bucketCounters, &saved.Counters)
		})
	})
	if err != nil {
		return Saved{}, fmt.Errorf("read the agent's state: %w", err)
	}
	return saved, nil
}

// each decodes all values of a bucket, in the order of their keys.
func each[T any](tx *bbolt.Tx, bucket string, into *[]*T) error {
	return tx.Bucket([]byte(bucket)).ForEach(func(k, v []byte) error {
		value, err := decode[T](v)
		if err != nil {
			return fmt.Errorf("%s of %q: %w", bucket, k, err)
		}
		*into = append(*into, value)
		return nil
	})
}

// decode reads one value; its errors wrap ErrCorrupt.
func decode[T any](b []byte) (*T, error) {
	value := new(T)
	if err := json.Unmarshal(b, value); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return value, nil
}
