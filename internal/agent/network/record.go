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

// errShut says that the spaces are not open: Facts has not been asked, or could not open them.
var errShut = errors.New("the networks of tasks are not open yet")

// openTimeout is how long one look waits for programs that an earlier life of the agent called.
const openTimeout = 5 * time.Second

// record is what is known of an attempt's namespace. It stands in the attempt's folder as long as anything of it may be
// left.
type record struct {
	UUID string `json:"uuid"`
	// Mode is empty where the agent died before the record was written: nothing was made then.
	Mode   cluster.NetworkMode `json:"mode,omitempty"`
	Ports  []Port              `json:"ports,omitempty"`
	Subnet string              `json:"subnet,omitempty"`
	// Address is the task's, once Made says that all is there.
	Address string `json:"address,omitempty"`
	Made    bool   `json:"made,omitempty"`
}

const recordFile = "record.json"

// opened returns nil once the spaces are open.
func (s *Spaces) opened() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil {
		return errShut
	}
	return nil
}

// open takes the lock, which programs hold that an earlier life of the agent called, and reads the records. Of Facts
// alone.
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

// write writes a record down and then makes it known.
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
	// Whole after the death of the agent; that of the machine takes the namespace with it, and leaves at most an
	// address that Sweep finds.
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
		return errShut
	}
	s.records[r.UUID] = r
	if r.Mode == cluster.NetworkBridge {
		s.settled = false
	}
	return nil
}

// drop removes the record of what is gone.
func (s *Spaces) drop(uuid string) error {
	if err := os.RemoveAll(s.folder(uuid)); err != nil {
		return fmt.Errorf("remove the folder of a namespace: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, uuid)
	return nil
}
