package etcd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"go.uber.org/goleak"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/election"
	"github.com/berthd/berth/internal/store/storetest/enginetest"
	"github.com/berthd/berth/internal/testkit"
)

// childDir, in the environment, makes the test binary an engine on that data directory, which
// answers calls on its standard input.
const childDir = "BERTH_TEST_ETCD_DIR"

// childConfig, in the environment, is a Config as JSON instead, of a member among others. childServer is the id of the
// server that the child then campaigns for.
const (
	childConfig = "BERTH_TEST_ETCD_CONFIG"
	childServer = "BERTH_TEST_ETCD_SERVER"
)

// careless, in the environment too, makes the child write on until the disk is full.
const careless = "BERTH_TEST_ETCD_CARELESS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := serve(dir, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) { // it has the default
		_ = flag.Set("test.parallel", strconv.Itoa(together))
	}
	goleak.VerifyTestMain(m)
}

// rounds is how often a test with chance in it tries: a few times, unless BERTH_STORE_ROUNDS says another number.
func rounds(t *testing.T, few int64) int {
	t.Helper()
	return int(max(testkit.Setting(t, "BERTH_STORE_ROUNDS", few), 1))
}

// question is one call, and reply what came of it, as lines of JSON.
type question struct {
	ID     int
	Key    string        `json:",omitempty"` // of a read
	Prefix string        `json:",omitempty"` // of a listing
	Groups []store.Group `json:",omitempty"` // of a commit
}

type reply struct {
	ID      int
	Ready   bool `json:",omitempty"`
	Record  store.Record
	Listing store.Listing
	Result  store.Result
	Absent  bool   `json:",omitempty"`
	Unknown bool   `json:",omitempty"`
	Error   string `json:",omitempty"`
}

// serve is the child: it answers every call on a goroutine of its own.
func serve(dir string, in io.Reader, out io.Writer) error {
	ctx := context.Background()
	config := Config{Dir: dir, Ballast: -1}
	if os.Getenv(careless) != "" {
		config.LowWater, config.Log = 1, slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if whole := os.Getenv(childConfig); whole != "" {
		if err := json.Unmarshal([]byte(whole), &config); err != nil {
			return err
		}
	}
	engine, err := Open(ctx, config)
	if err != nil {
		return err
	}
	defer engine.Close()
	if server := os.Getenv(childServer); server != "" {
		go campaign(ctx, engine, server)
	}
	var mu sync.Mutex
	encoder := json.NewEncoder(out)
	send := func(r reply) {
		mu.Lock()
		defer mu.Unlock()
		_ = encoder.Encode(r) // the parent may be gone
	}
	send(reply{Ready: true})
	decoder := json.NewDecoder(bufio.NewReader(in))
	for {
		var q question
		if err := decoder.Decode(&q); err != nil {
			return nil // the parent is done
		}
		go func() {
			r := reply{ID: q.ID}
			var err error
			switch {
			case q.Groups != nil:
				r.Result, err = engine.Commit(ctx, q.Groups)
			case q.Key != "":
				r.Record, err = engine.Read(ctx, q.Key)
			default:
				r.Listing, err = engine.List(ctx, q.Prefix)
			}
			if err != nil {
				r.Error = err.Error()
				r.Absent = errors.Is(err, store.ErrNotFound)
				r.Unknown = errors.Is(err, store.ErrUnknown)
			}
			send(r)
		}()
	}
}

// child is an engine in a process of its own, which can be killed. Calls wait while it is
// down. It has the methods of store.Engine that a trial calls.
type child struct {
	store.Engine
	t      *testing.T
	dir    string
	config *Config // of a member among others
	server string  // that it campaigns for

	mu      sync.Mutex
	process *process // nil while it is down
	up      chan struct{}
}

// process is one life of the child.
type process struct {
	command *exec.Cmd
	in      io.WriteCloser
	ended   chan struct{} // its replies have ended

	mu      sync.Mutex
	last    int
	waiting map[int]chan reply
}

func newChild(t *testing.T) *child {
	c := &child{t: t, dir: filepath.Join(t.TempDir(), "store"), up: make(chan struct{})}
	c.start()
	t.Cleanup(func() { c.stop() })
	return c
}

// campaign leads whenever it can.
func campaign(ctx context.Context, engine store.Engine, server string) {
	member, _ := engine.(store.EngineMember)
	candidate := election.NewCandidate(election.CandidateConfig{
		Engine: engine, Member: member, Prefix: store.DefaultPrefix, Domain: "main",
		Server: server, Random: rand.New(rand.NewPCG(1, uint64(len(server)))),
	})
	for {
		leadership, err := candidate.Campaign(ctx)
		if err != nil {
			return
		}
		<-leadership.Context().Done()
		leadership.Resign()
	}
}

// start runs the child and returns when it serves.
func (c *child) start() {
	p := &process{
		command: exec.Command(os.Args[0]),
		ended:   make(chan struct{}),
		waiting: map[int]chan reply{},
	}
	p.command.Env = append(os.Environ(), childDir+"="+c.dir)
	if c.config != nil {
		config := *c.config
		config.Log = nil
		whole, err := json.Marshal(config)
		if err != nil {
			c.t.Errorf("encode: %v", err)
			return
		}
		p.command.Env = append(p.command.Env, childConfig+"="+string(whole), childServer+"="+c.server)
	}
	p.command.Stderr = c.t.Output()
	in, err := p.command.StdinPipe()
	if err != nil {
		c.t.Errorf("pipe: %v", err)
		return
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		c.t.Errorf("pipe: %v", err)
		return
	}
	p.in = in
	if err := p.command.Start(); err != nil {
		c.t.Errorf("start child: %v", err)
		return
	}
	ready := make(chan struct{})
	go p.receive(out, ready)
	select {
	case <-ready:
	case <-p.ended:
		c.t.Errorf("the child ended before it served")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process = p
	close(c.up)
}

// receive hands replies to those who wait for them.
func (p *process) receive(out io.Reader, ready chan<- struct{}) {
	defer close(p.ended)
	decoder := json.NewDecoder(bufio.NewReader(out))
	for {
		var r reply
		if err := decoder.Decode(&r); err != nil {
			return
		}
		if r.Ready {
			close(ready)
			continue
		}
		p.mu.Lock()
		p.waiting[r.ID] <- r
		p.mu.Unlock()
	}
}

// stop kills the child; what is in flight stays unanswered.
func (c *child) stop() {
	c.mu.Lock()
	p := c.process
	c.process, c.up = nil, make(chan struct{})
	c.mu.Unlock()
	if p == nil {
		return
	}
	_ = p.command.Process.Kill()
	<-p.ended
	_ = p.command.Wait()
}

func (c *child) kill() {
	c.stop()
	c.start()
}

// ask sends a call and waits for its reply; it returns an error if there is none.
func (c *child) ask(ctx context.Context, q question) (reply, error) {
	c.mu.Lock()
	p, up := c.process, c.up
	c.mu.Unlock()
	for p == nil {
		select {
		case <-up:
		case <-ctx.Done():
			return reply{}, ctx.Err()
		}
		c.mu.Lock()
		p, up = c.process, c.up
		c.mu.Unlock()
	}
	answer := make(chan reply, 1)
	p.mu.Lock()
	p.last++
	q.ID = p.last
	p.waiting[q.ID] = answer
	err := json.NewEncoder(p.in).Encode(q)
	p.mu.Unlock()
	if err != nil {
		return reply{}, fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
	select {
	case r := <-answer:
		return r, nil
	case <-p.ended:
	}
	select {
	case r := <-answer: // the last words
		return r, nil
	default:
		return reply{}, fmt.Errorf("the child was killed: %w", store.ErrUnknown)
	}
}

func (r reply) err() error {
	switch {
	case r.Absent:
		return store.ErrNotFound
	case r.Unknown:
		return fmt.Errorf("%w: %s", store.ErrUnknown, r.Error)
	case r.Error != "":
		return errors.New(r.Error)
	}
	return nil
}

func (c *child) Read(ctx context.Context, key string) (store.Record, error) {
	r, err := c.ask(ctx, question{Key: key})
	return r.Record, errors.Join(err, r.err())
}

func (c *child) List(ctx context.Context, prefix string) (store.Listing, error) {
	r, err := c.ask(ctx, question{Prefix: prefix})
	return r.Listing, errors.Join(err, r.err())
}

func (c *child) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	r, err := c.ask(ctx, question{Groups: groups})
	return r.Result, errors.Join(err, r.err())
}

// TestKilledEngineIsLinearizable kills a real engine, with SIGKILL, under its clients.
func TestKilledEngineIsLinearizable(t *testing.T) {
	t.Parallel()
	var histories [][]porcupine.Operation
	for seed := range uint64(rounds(t, 3)) {
		c := newChild(t)
		trial := enginetest.Trial{Engine: c, Kill: c.kill, Clients: 8, Steps: 40, Kills: 2, Seed: seed}
		history, err := trial.Run(t.Context())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		c.stop()
		histories = append(histories, history)
	}
	enginetest.Linearizable(t, histories, 2*time.Second)
}
