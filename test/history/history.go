// Package history checks that the API of a control plane is linearizable through all of its servers. A single server
// with one call at a time could have given all answers.
//
// A Recorder has several clients write and read the counts of services through random servers. The calls are plain
// writes, writes that compare the revision they read, and consistent reads. The recorder keeps the begin, end and
// result of each call. A call with a lost answer may have happened at any later time, or never. Check passes the calls
// to porcupine with the model of one server. The services are stopped, so that nothing is placed.
//
//	h := history.New(history.Config{Servers: clients, Services: 3, Workers: 8, Random: random})
//	h.Prepare(ctx)
//	h.Run(ctx) // until ctx ends, while the test breaks things
//	if v := h.Check(time.Minute); !v.Linearizable { t.Error(v) }
package history

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// Config is what New needs.
type Config struct {
	// Servers are clients of one server each. A client that changes its server would hide which server gave an answer.
	// There must be one at least. Several clients may have the same server.
	Servers []*client.Client
	// Cluster that the services are made in; default cluster.DefaultCluster.
	Cluster string
	// Services is how many are used; more make shorter histories of each, which are checked faster. Default 3.
	Services int
	// Workers is the number of concurrent calls; default 5.
	Workers int
	// Pause is how long a worker waits between two calls, at random up to twice as long; 0 is not at all.
	Pause time.Duration
	// CallTimeout bounds one call; default 10 s.
	CallTimeout time.Duration
	// Random chooses the calls. Only the recorder uses it.
	Random *rand.Rand
}

// Recorder makes calls and notes them. Prepare and Run are called one after the other; all else is safe for concurrent
// use.
type Recorder struct {
	cfg   Config
	began time.Time

	mu   sync.Mutex
	ops  []porcupine.Operation
	next int // the count of the next write
	// lost and refused count calls without an answer, and such that were refused without any effect.
	lost, refused int
}

// kind is the kind of a call.
type kind int

const (
	write   kind = iota // of a count, whatever the record
	compare             // of a count, if the revision is still the one that was seen
	read
)

// input is a request.
type input struct {
	kind     kind
	service  string
	server   int
	count    int
	revision uint64 // of compare
}

// output is what came of it.
type output struct {
	count    int
	revision uint64
	refused  bool // compare: another revision stood
	lost     bool // a write without an answer
}

// New returns a recorder that has done nothing.
func New(cfg Config) *Recorder {
	if cfg.Cluster == "" {
		cfg.Cluster = cluster.DefaultCluster
	}
	if cfg.Services == 0 {
		cfg.Services = 3
	}
	if cfg.Workers == 0 {
		cfg.Workers = 5
	}
	if cfg.CallTimeout == 0 {
		cfg.CallTimeout = 10 * time.Second
	}
	return &Recorder{cfg: cfg, next: 1}
}

const definition = "history"

func (r *Recorder) service(n int) string { return fmt.Sprintf("history-%d", n) }

// Prepare makes the services, stopped and with the count 0, through any server that answers.
func (r *Recorder) Prepare(ctx context.Context) error {
	ref := cluster.Ref{Name: definition, Version: 1}
	def := api.TaskDefinition{Name: ref.Name, Version: ref.Version, Containers: []cluster.Container{{
		Name: "main", Command: []string{"true"},
	}}}
	try := func(do func(*client.Client) error) (err error) {
		for _, c := range r.cfg.Servers {
			if err = do(c); err == nil {
				return nil
			}
		}
		return err
	}
	err := try(func(c *client.Client) error { _, err := c.PutDefinition(ctx, def); return err })
	if err != nil {
		return fmt.Errorf("prepare a history: %w", err)
	}
	for n := range r.cfg.Services {
		err := try(func(c *client.Client) error {
			_, err := c.PutService(ctx, r.spec(r.service(n), 0), client.Condition{})
			return err
		})
		if err != nil {
			return fmt.Errorf("prepare a history: %w", err)
		}
	}
	return nil
}

func (r *Recorder) spec(name string, count int) api.Service {
	return api.Service{
		Cluster: r.cfg.Cluster, Name: name, Definition: cluster.Ref{Name: definition, Version: 1}, Count: count,
		Stopped: true,
	}
}

// Run makes calls until ctx ends. Failed calls are part of the history.
func (r *Recorder) Run(ctx context.Context) {
	r.began = time.Now()
	var workers sync.WaitGroup
	for id := range r.cfg.Workers {
		workers.Go(func() { r.work(ctx, id) })
	}
	workers.Wait()
}

// work is one worker: it remembers the revisions that it saw, for the writes that compare.
func (r *Recorder) work(ctx context.Context, id int) {
	seen := map[string]uint64{}
	for ctx.Err() == nil {
		in, pause := r.choose(seen)
		op := porcupine.Operation{ClientId: id, Input: in, Call: time.Since(r.began).Nanoseconds()}
		out, happened := r.call(ctx, in)
		op.Output, op.Return = out, time.Since(r.began).Nanoseconds()
		if happened {
			r.note(op)
			if out.revision != 0 {
				seen[in.service] = out.revision
			}
		}
		if pause > 0 {
			testkit.Pause(ctx, pause)
		}
	}
}

// choose decides on the next call of a worker.
func (r *Recorder) choose(seen map[string]uint64) (in input, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	random := r.cfg.Random
	in.service = r.service(random.IntN(r.cfg.Services))
	in.server = random.IntN(len(r.cfg.Servers))
	if r.cfg.Pause > 0 {
		pause = time.Duration(random.Int64N(2 * int64(r.cfg.Pause)))
	}
	switch n := random.IntN(10); {
	case n < 5:
		in.kind = read
		return in, pause
	case n < 8 && seen[in.service] != 0:
		in.kind, in.revision = compare, seen[in.service]
	}
	in.count = r.next
	r.next = r.next%cluster.MaxCount + 1
	return in, pause
}

// call makes the chosen call. The result says that it did not happen if it certainly had no effect, or if a read has no
// answer.
func (r *Recorder) call(ctx context.Context, in input) (out output, happened bool) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
	defer cancel()
	c := r.cfg.Servers[in.server]
	if in.kind == read {
		v, err := c.Consistent().Service(ctx, r.cfg.Cluster, in.service)
		if err != nil {
			r.count(&r.refused)
			return out, false
		}
		return output{count: v.Count, revision: v.Revision}, true
	}
	revision, err := c.PutService(ctx, r.spec(in.service, in.count), client.Condition{Revision: in.revision})
	switch status := client.StatusOf(err); {
	case err == nil:
		return output{count: in.count, revision: revision}, true
	case status == http.StatusPreconditionFailed && in.kind == compare:
		return output{refused: true}, true
	case status == http.StatusInsufficientStorage, // nothing was written, the server promises
		status >= http.StatusBadRequest && status < http.StatusInternalServerError,
		status == 0 && errors.Is(err, client.ErrUnreachable) && !errors.Is(err, client.ErrUncertain):
		r.count(&r.refused)
		return out, false
	}
	r.count(&r.lost)
	return output{lost: true}, true
}

func (r *Recorder) count(n *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
}

func (r *Recorder) note(op porcupine.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, op)
}
