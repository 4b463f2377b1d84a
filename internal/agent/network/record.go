package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

// opened returns nil once the spaces are open.
func (s *Spaces) opened() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil {
		return errNotOpen
	}
	return nil
}

// open takes the lock, which programs of an earlier run of the agent may hold, and reads the records. Only Facts calls
// it.
func (s *Spaces) open() error {
	if s.opened() == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(s.Dir, "tasks"), 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(s.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
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
	records, err := s.load()
	if err != nil {
		_ = lock.Close()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lock, s.records = lock, records
	return nil
}

func (s *Spaces) load() (map[string]record, error) {
	entries, err := os.ReadDir(filepath.Join(s.Dir, "tasks"))
	if err != nil {
		return nil, err
	}
	records := make(map[string]record, len(entries))
	for _, e := range entries {
		uuid := e.Name()
		var r record
		err := outlive.Read(filepath.Join(s.folder(uuid), recordFile), &r)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Logger.Warn("the record of a task's network cannot be read, and is made anew", "attempt", uuid, "error",
				err)
			r = record{Mode: cluster.NetworkBridge}
		}
		r.UUID = uuid
		records[uuid] = r
	}
	return records, nil
}

func (s *Spaces) record(uuid string) (record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[uuid]
	return r, ok
}

// write stores a record on disk and then in memory.
func (s *Spaces) write(r record) error {
	if err := s.opened(); err != nil {
		return err
	}
	if err := os.MkdirAll(s.folder(r.UUID), 0o700); err != nil {
		return fmt.Errorf("make the folder of a namespace: %w", err)
	}
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the record of a namespace: %w", err)
	}
	// The file survives the death of the agent. A reboot of the machine removes the namespace as well and leaves at
	// most an address, which Sweep finds.
	name := filepath.Join(s.folder(r.UUID), recordFile)
	if err = os.WriteFile(name+".new", b, 0o600); err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		return fmt.Errorf("write the record of a namespace: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records == nil {
		return errNotOpen
	}
	s.records[r.UUID] = r
	if r.Mode == cluster.NetworkBridge {
		s.upToDate = false
	}
	return nil
}

// drop removes the record of a removed network.
func (s *Spaces) drop(uuid string) error {
	if err := os.RemoveAll(s.folder(uuid)); err != nil {
		return fmt.Errorf("remove the folder of a namespace: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, uuid)
	return nil
}
