package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// Bounds of the traffic.
const (
	// requestLimit is how long an answer may take, and more on a busy machine: a container with few shares of CPU waits
	// long for its turn.
	requestLimit = 10 * time.Second
	// followWait is how long a question for the addresses waits for a change, and followLimit how long for the answer.
	followWait  = 5 * time.Second
	followLimit = 10 * time.Second
)

// Config describes the requests.
type Config struct {
	// Client follows the addresses of Service. Port is the name of a port of the definition.
	Client        *client.Client
	Service, Port string
	// Dial reaches them; nil is the machine's own network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Rate is how many requests a second there are in all, sent by Workers. Defaults 200 and 20.
	Rate, Workers int
	// Random makes the choices. Only the Traffic uses it from then on.
	Random *rand.Rand
}

// target is a healthy address, with the process behind it.
type target struct {
	uuid, node string
	task       cluster.TaskID
	started    time.Time
	url        string
	http       *http.Transport
}

// Failure is a request that was not answered as it should be.
type Failure struct {
	Began, Ended time.Time
	Task         cluster.TaskID
	UUID, Node   string
	// Started is when the process behind the address was started.
	Started time.Time
	Err     error
}

// String returns the error, the address and the times of the request.
func (f Failure) String() string {
	return fmt.Sprintf("%s (after %v) %s on %s, attempt %s, started %s: %v", f.Ended.Format(time.StampMilli),
		f.Ended.Sub(f.Began).Round(time.Millisecond), f.Task, f.Node, f.UUID, f.Started.Format(time.StampMilli), f.Err)
}

// Traffic sends requests to the healthy addresses of a service. Its methods may be called concurrently.
type Traffic struct {
	cfg   Config
	sent  atomic.Int64
	empty atomic.Int64

	mu       sync.Mutex
	targets  []*target
	failures []Failure
	lost     int // failures beyond maxFailures
	blind    time.Duration
	seen     int // the fewest addresses, once there were any
}

// maxFailures limits the number of kept failures.
const maxFailures = 100_000

// New returns a Traffic that has not begun.
func New(cfg Config) *Traffic {
	if cfg.Rate <= 0 {
		cfg.Rate = 200
	}
	if cfg.Workers <= 0 {
		cfg.Workers = 20
	}
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	return &Traffic{cfg: cfg}
}

// Run sends requests until ctx ends. It waits for the first addresses.
func (t *Traffic) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { t.follow(ctx) })
	for range t.cfg.Workers {
		random := rand.New(rand.NewPCG(t.cfg.Random.Uint64(), 0))
		all.Go(func() { t.work(ctx, random) })
	}
	all.Wait()
	t.replace(nil)
}

// Sent is how many requests were begun.
func (t *Traffic) Sent() int64 { return t.sent.Load() }

// Empty is how often there was no address to send a request to.
func (t *Traffic) Empty() int64 { return t.empty.Load() }

// Failures returns the requests that failed, the oldest first; lost is how many more there were.
func (t *Traffic) Failures() (all []Failure, lost int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Failure(nil), t.failures...), t.lost
}

// Blind is the longest time without an answer of any server to the follower of the addresses.
func (t *Traffic) Blind() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.blind
}

// Fewest is how many addresses there were at the worst moment, since there were any.
func (t *Traffic) Fewest() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen
}

// follow updates the addresses of healthy tasks.
func (t *Traffic) follow(ctx context.Context) {
	var index uint64
	since := time.Now()
	for ctx.Err() == nil {
		each, cancel := context.WithTimeout(ctx, followLimit)
		page, err := t.cfg.Client.Tasks(each,
			client.TaskFilter{Cluster: cluster.DefaultCluster, Service: t.cfg.Service},
			client.ListOptions{Index: index, Wait: followWait})
		cancel()
		if err != nil {
			index = 0 // the present list, from any server that answers
			testkit.Pause(ctx, 20*time.Millisecond)
			t.mu.Lock()
			t.blind = max(t.blind, time.Since(since))
			t.mu.Unlock()
			continue
		}
		index, since = page.Index, time.Now()
		t.replace(page.Items)
	}
}

// replace sets the addresses of healthy tasks. Connections to other addresses are closed once they are idle.
func (t *Traffic) replace(tasks []api.TaskView) {
	t.mu.Lock()
	defer t.mu.Unlock()
	had := map[string]*target{}
	for _, old := range t.targets {
		had[old.uuid+old.started.String()] = old
	}
	t.targets = nil
	for i := range tasks {
		v := &tasks[i]
		port := v.Ports[t.cfg.Port]
		if v.State != cluster.StateRunning || v.Health != cluster.HealthHealthy || port == 0 || len(v.Containers) == 0 {
			continue
		}
		started := v.Containers[len(v.Containers)-1].Started
		key := v.UUID + started.String()
		if old := had[key]; old != nil {
			t.targets = append(t.targets, old)
			delete(had, key)
			continue
		}
		t.targets = append(t.targets, &target{
			uuid: v.UUID, node: v.Node, task: v.ID, started: started,
			url: "http://" + net.JoinHostPort(v.Address, strconv.Itoa(port)) + "/",
			http: &http.Transport{
				DialContext: t.cfg.Dial, MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute,
				DisableCompression: true,
			},
		})
	}
	for _, old := range had {
		old.http.CloseIdleConnections()
	}
	if len(t.targets) > 0 && (t.seen == 0 || len(t.targets) < t.seen) {
		t.seen = len(t.targets)
	}
}

func (t *Traffic) choose(random *rand.Rand) *target {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.targets) == 0 {
		return nil
	}
	return t.targets[random.IntN(len(t.targets))]
}

// work sends one request after the other, at its share of the rate.
func (t *Traffic) work(ctx context.Context, random *rand.Rand) {
	between := time.Duration(t.cfg.Workers) * time.Second / time.Duration(t.cfg.Rate)
	began := false
	for next := time.Now(); ctx.Err() == nil; next = next.Add(between) {
		testkit.Pause(ctx, time.Until(next))
		if late := time.Since(next); late > time.Second {
			next = time.Now() // a slow machine is not made up for
		}
		to := t.choose(random)
		switch {
		case ctx.Err() != nil:
			return
		case to == nil && began:
			t.empty.Add(1)
		case to == nil:
		default:
			began = true
			t.request(ctx, to)
		}
	}
}

// request sends one request, once: one with a body is not sent again by the library either.
func (t *Traffic) request(ctx context.Context, to *target) {
	t.sent.Add(1)
	began := time.Now()
	limited, cancel := testkit.WithLimit(ctx, requestLimit)
	defer cancel()
	err := func() error {
		req, err := http.NewRequestWithContext(limited, http.MethodPost, to.url,
			io.NopCloser(strings.NewReader("hello")))
		if err != nil {
			return err
		}
		res, err := to.http.RoundTrip(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		switch said := strings.TrimSpace(string(body)); {
		case err != nil:
			return err
		case res.StatusCode != http.StatusOK:
			return fmt.Errorf("%s: %s", res.Status, said)
		case said != to.uuid:
			return fmt.Errorf("another attempt answers at its address: %s", said)
		}
		return nil
	}()
	if err == nil || ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.failures) >= maxFailures {
		t.lost++
		return
	}
	t.failures = append(t.failures,
		Failure{
			Began: began, Ended: time.Now(), Task: to.task, UUID: to.uuid, Node: to.node, Started: to.started,
			Err: err,
		})
}
