package state

import (
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
)

// Memory is a disk for simulations: its content outlives the agent that wrote it. Its methods may be called
// concurrently; the zero value is an empty disk.
type Memory struct {
	// Fault, unless nil, is called before each write: an error fails the write. It may block. It is set before the
	// first Open.
	Fault func() error

	mu   sync.Mutex
	now  *life
	data map[key][]byte
}

// life is one run of an agent on a Memory.
type life struct{ m *Memory }

// OpenMemory opens a store on a Memory. A store that was open on it before writes no more.
func OpenMemory(m *Memory, log *slog.Logger) *Store {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = &life{m: m}
	return &Store{mem: m.now, log: log, pending: map[key][]byte{}, wake: make(chan struct{}, 1)}
}

// Crash ends the open store: unwritten changes are lost.
func (m *Memory) Crash() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = nil
}

// Wipe removes all content, like a replaced disk.
func (m *Memory) Wipe() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.data)
}

func (l *life) write(batch map[key][]byte) error {
	if l.m.Fault != nil {
		if err := l.m.Fault(); err != nil {
			return err
		}
	}
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.m.now != l {
		return ErrClosed
	}
	if l.m.data == nil {
		l.m.data = map[key][]byte{}
	}
	for k, v := range batch {
		if v == nil {
			delete(l.m.data, k)
		} else {
			l.m.data[k] = v
		}
	}
	return nil
}

// load reads everything, in the order of the keys.
func (l *life) load() (saved Saved, err error) {
	l.m.mu.Lock()
	data := maps.Clone(l.m.data)
	l.m.mu.Unlock()
	names := map[string][]string{}
	for k := range data {
		names[k.bucket] = append(names[k.bucket], k.name)
	}
	for bucket, of := range names {
		slices.Sort(of)
		for _, name := range of {
			b := data[key{bucket, name}]
			switch bucket {
			case bucketAgent:
				var m *Mark
				if m, err = decode[Mark](b); err == nil {
					saved.Mark = *m
				}
			case bucketAttempts:
				var r *attempt.Record
				if r, err = decode[attempt.Record](b); err == nil {
					saved.Attempts = append(saved.Attempts, r)
				}
			case bucketDefinitions:
				var d *cluster.TaskDefinition
				if d, err = decode[cluster.TaskDefinition](b); err == nil {
					saved.Definitions = append(saved.Definitions, d)
				}
			case bucketCounters:
				var c *Counters
				if c, err = decode[Counters](b); err == nil {
					saved.Counters = append(saved.Counters, c)
				}
			}
			if err != nil {
				return Saved{}, err
			}
		}
	}
	return saved, nil
}
