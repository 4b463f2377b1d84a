// Package load puts services under constant requests and measures their availability independently of Berth.
//
// The program in task, which such services run, reports to a Recorder when it starts, becomes healthy, gets TERM and
// ends. The number of healthy tasks at each stop is therefore known from the processes themselves. BelowMinimum finds,
// in these records, the times at which Berth took a service below its minimum. Traffic sends requests only to the
// addresses of healthy tasks, and sends none of them twice.
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

// The kinds of records.
const (
	Up   = "up"   // it listens
	Well = "well" // its check succeeded for the first time
	Ill  = "ill"  // its check was answered badly for the first time
	Term = "term" // it got TERM, and serves for a while
	End  = "end"  // it serves no more
)

// Record is one report of a process.
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

// Recorder collects the records of the processes of tasks. Its methods may be called concurrently.
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

// Address is the value of RECORD for tasks.
func (r *Recorder) Address() string { return r.listener.Addr().String() }

// All returns all records so far, in the order of time.
func (r *Recorder) All() []Record {
	r.mu.Lock()
	all := slices.Clone(r.records)
	r.mu.Unlock()
	slices.SortStableFunc(all, func(a, b Record) int { return a.At.Compare(b.At) })
	return all
}

// Close ends the recorder and its connections.
func (r *Recorder) Close() {
	_ = r.listener.Close() // there is no recorder
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
