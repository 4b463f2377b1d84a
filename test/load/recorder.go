// Package load puts services under constant requests and finds out, without asking Berth, how they did.
//
// The program in task, which such services run, tells a Recorder when it is up, well, told to stop, and at its end: so
// what was given up, and how many tasks were well at that moment, is known from the processes themselves. BelowMinimum
// looks through that for the moments at which Berth took a service below its minimum. Traffic sends requests to the
// addresses that Berth calls healthy, and to no others, and tries none of them twice.
package load

import (
	"bufio"
	"encoding/json"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// What a process tells of itself.
const (
	Up   = "up"   // it listens
	Well = "well" // its check was answered well for the first time
	Ill  = "ill"  // its check was answered badly for the first time
	Term = "term" // it was told to stop, and serves on for a while
	End  = "end"  // it serves no more
)

// Record is one thing that a process told.
type Record struct {
	At      time.Time      `json:"at"`
	What    string         `json:"what"`
	Task    cluster.TaskID `json:"task"`
	Attempt int            `json:"attempt"`
	UUID    string         `json:"uuid"`
	Node    string         `json:"node"`
	Version string         `json:"version"`
	Pid     int            `json:"pid"`
}

// Recorder takes what the processes of tasks tell. Its methods may be called concurrently.
type Recorder struct {
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	records []Record
	conns   map[net.Conn]bool
	closed  bool
}

// NewRecorder takes records from the connections to a listener until it is closed.
func NewRecorder(l net.Listener) *Recorder {
	r := &Recorder{listener: l, conns: map[net.Conn]bool{}}
	r.running.Go(r.accept)
	return r
}

// Address is what tasks are to be told as RECORD.
func (r *Recorder) Address() string { return r.listener.Addr().String() }

// All returns what was told so far, in the order of time.
func (r *Recorder) All() []Record {
	r.mu.Lock()
	all := slices.Clone(r.records)
	r.mu.Unlock()
	slices.SortStableFunc(all, func(a, b Record) int { return a.At.Compare(b.At) })
	return all
}

// Close ends the recorder and its connections.
func (r *Recorder) Close() {
	_ = r.listener.Close() // nobody is to be told
	r.mu.Lock()
	r.closed = true
	for c := range r.conns {
		_ = c.Close() // the same
	}
	r.mu.Unlock()
	r.running.Wait()
}

func (r *Recorder) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return // it was closed
		}
		r.mu.Lock()
		closed := r.closed
		r.conns[conn] = true
		r.mu.Unlock()
		if closed {
			_ = conn.Close() // it came too late
			return
		}
		r.running.Go(func() { r.read(conn) })
	}
}

// read takes records until the process ends.
func (r *Recorder) read(conn net.Conn) {
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var rec Record
		if json.Unmarshal(lines.Bytes(), &rec) != nil {
			continue // a process that was killed while it wrote
		}
		r.mu.Lock()
		r.records = append(r.records, rec)
		r.mu.Unlock()
	}
	_ = conn.Close() // its other end is gone
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, conn)
}
