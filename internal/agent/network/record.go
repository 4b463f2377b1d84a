package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor/outlive"
)

// errNotOpen means that the spaces are not open: Facts was not called, or could not open them.
var errNotOpen = errors.New("the networks of tasks are not open yet")

// openTimeout is how long one call of open waits for programs that an earlier run of the agent called.
const openTimeout = 5 * time.Second

// record describes an attempt's namespace. It is in the attempt's folder as long as any part of the namespace may
// exist.
type record struct {
	UUID string `json:"uuid"`
	// Mode is empty if the agent died before it wrote the record: nothing was created then.
	Mode   cluster.NetworkMode `json:"mode,omitempty"`
	Ports  []Port              `json:"ports,omitempty"`
	Subnet string              `json:"subnet,omitempty"`
	// Address is the task's address, set when Made says that the network is complete.
	Address string `json:"address,omitempty"`
	Made    bool   `json:"made,omitempty"`
}

const recordFile = "record.json"

// records holds the records of a node's network namespaces, on disk and in memory. Memory never knows more than the
// disk. The agent and each program that it calls hold the lock of the folder meanwhile, so that no two agents use it.
// All methods may be called concurrently.
type records struct {
	dir    string
	logger *slog.Logger

	mu       sync.Mutex
	lock     *os.File // nil until the records are open
	byUUID   map[string]record
	upToDate bool // the rules and the bridge match the records
}

// folder is the folder of an attempt's namespace.
func (r *records) folder(uuid string) string { return filepath.Join(r.dir, "tasks", uuid) }

// spaceFile is the file that keeps an attempt's namespace.
func (r *records) spaceFile(uuid string) string { return filepath.Join(r.folder(uuid), "ns") }

// opened returns nil once the spaces are open.
func (r *records) opened() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock == nil {
		return errNotOpen
	}
	return nil
}

// open takes the lock, which programs of an earlier run of the agent may hold, and reads the records. Only Facts calls
// it.
func (r *records) open() error {
	if r.opened() == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(r.dir, "tasks"), 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(r.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	begin := time.Now()
	for outlive.Lock(lock) != nil {
		if time.Since(begin) > openTimeout {
			_ = lock.Close()
			return errors.New("programs that an earlier agent called are still at work on them")
		}
		time.Sleep(10 * time.Millisecond)
	}
	records, err := r.load()
	if err != nil {
		_ = lock.Close()
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lock, r.byUUID = lock, records
	return nil
}

// load reads all records. A record that cannot be read counts as one of a bridge, which leaves nothing behind.
func (r *records) load() (map[string]record, error) {
	entries, err := os.ReadDir(filepath.Join(r.dir, "tasks"))
	if err != nil {
		return nil, err
	}
	records := make(map[string]record, len(entries))
	for _, e := range entries {
		uuid := e.Name()
		var rec record
		err := outlive.Read(filepath.Join(r.folder(uuid), recordFile), &rec)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.logger.Warn("the record of a task's network cannot be read and is made again", "attempt", uuid, "error",
				err)
			rec = record{Mode: cluster.NetworkBridge}
		}
		rec.UUID = uuid
		records[uuid] = rec
	}
	return records, nil
}

// get returns the record of an attempt.
func (r *records) get(uuid string) (record, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, ok := r.byUUID[uuid]
	return rec, ok
}

// write stores a record on disk and then in memory.
func (r *records) write(rec record) error {
	if err := r.opened(); err != nil {
		return err
	}
	if err := os.MkdirAll(r.folder(rec.UUID), 0o700); err != nil {
		return fmt.Errorf("make the folder of a namespace: %w", err)
	}
	b, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("write the record of a namespace: %w", err)
	}
	// The file survives the death of the agent. A reboot of the machine removes the namespace as well and leaves at
	// most an address, which Sweep finds.
	name := filepath.Join(r.folder(rec.UUID), recordFile)
	if err = os.WriteFile(name+".new", b, 0o600); err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		return fmt.Errorf("write the record of a namespace: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byUUID == nil {
		return errNotOpen
	}
	r.byUUID[rec.UUID] = rec
	if rec.Mode == cluster.NetworkBridge {
		r.upToDate = false
	}
	return nil
}

// drop removes the record of a removed network.
func (r *records) drop(uuid string) error {
	if err := os.RemoveAll(r.folder(uuid)); err != nil {
		return fmt.Errorf("remove the folder of a namespace: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byUUID, uuid)
	return nil
}

// all returns the records in order.
func (r *records) all() []record {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]record, 0, len(r.byUUID))
	for _, rec := range r.byUUID { // order-free: sorted below
		list = append(list, rec)
	}
	slices.SortFunc(list, func(a, b record) int { return strings.Compare(a.UUID, b.UUID) })
	return list
}

// bridged reports whether an attempt has, or may have, a connection to the bridge.
func (r *records) bridged() bool {
	return slices.ContainsFunc(r.all(), func(rec record) bool { return rec.Mode != cluster.NetworkNone })
}

// settled reports whether the rules and the bridge match the records.
func (r *records) settled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.upToDate
}

// settle records that the rules and the bridge match the records.
func (r *records) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.upToDate = true
}

// close forgets the records and releases the lock. They can be opened again.
func (r *records) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock == nil {
		return nil
	}
	err := r.lock.Close()
	r.lock, r.byUUID, r.upToDate = nil, nil, false
	return err
}
