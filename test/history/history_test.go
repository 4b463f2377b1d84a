package history_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/apiserver"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/history"
)

// chance is a source of chance that several goroutines share.
type chance struct {
	mu     sync.Mutex
	random *rand.Rand
}

func newChance(seed uint64) *chance { return &chance{random: rand.New(rand.NewPCG(seed, 1))} }

func (c *chance) one(in int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(in) == 0
}

func (c *chance) upTo(d time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(c.random.Int64N(int64(d)))
}

// late delivers what its engine's watch delivers some time later, so that the tables behind it lag.
type late struct {
	store.Engine
	chance *chance
	most   time.Duration
}

func (e *late) Watch(ctx context.Context, prefix string, after uint64) store.Watch {
	return &lateWatch{e.Engine.Watch(ctx, prefix, after), e}
}

type lateWatch struct {
	store.Watch
	engine *late
}

func (w *lateWatch) Next(ctx context.Context) (store.Batch, error) {
	b, err := w.Watch.Next(ctx)
	testkit.Pause(ctx, w.engine.chance.upTo(w.engine.most))
	return b, err
}

// serve runs an API server over an engine and returns a client of it.
func serve(t *testing.T, engine store.Engine) *client.Client {
	t.Helper()
	const token = "a-token-of-tests-0123456789"
	tables := store.NewTables(store.TablesConfig{Engine: engine, Logger: slog.New(slog.DiscardHandler)})
	server := apiserver.New(apiserver.Config{
		Engine: engine, Tables: tables, Trust: apiserver.Trust{Token: token},
		Permissions: cluster.Permissions(),
	})
	l, err := apiserver.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = tables.Run(ctx) })
	ended.Go(func() { _ = server.Serve(ctx, l) })
	t.Cleanup(func() {
		cancel()
		ended.Wait()
		_ = engine.Close()
	})
	<-tables.Synced()
	return connect(t, l.URL(), token)
}

func connect(t *testing.T, addr, token string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Addr: addr, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// record makes a history for a while and checks it.
func record(t *testing.T, during time.Duration, cfg history.Config) history.Verdict {
	t.Helper()
	r := history.New(cfg)
	if err := r.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	r.Run(ctx)
	return r.Check(time.Minute)
}

// TestHistoryOfThreeServers writes and reads through three servers whose tables lag by up to 30 ms. Their engine
// sometimes loses an answer, before or after the write.
func TestHistoryOfThreeServers(t *testing.T) {
	const seed = 7
	luck := newChance(seed)
	loses := func(context.Context, []store.Group) error {
		if luck.one(40) {
			return store.ErrUnknown
		}
		return nil
	}
	hooks := memory.Hooks{
		Before: loses,
		After:  func(ctx context.Context, groups []store.Group, _ store.Result) error { return loses(ctx, groups) },
	}
	first := memory.New(memory.Options{Hooks: hooks})
	var servers []*client.Client
	for range 3 {
		servers = append(servers, serve(t, &late{first.Open(hooks), luck, 30 * time.Millisecond}))
	}
	v := record(t, 2*time.Second, history.Config{
		Servers: servers, Workers: 8, Services: 4, Random: rand.New(rand.NewPCG(seed, 2)),
	})
	t.Log(v)
	if !v.Linearizable {
		path := filepath.Join(t.ArtifactDir(), "history.html")
		t.Errorf("%v; drawn at %s (%v)", v, path, v.Draw(path))
	}
	if v.Calls < 200 {
		t.Errorf("only %d calls: the history says little", v.Calls)
	}
}

// liar is a server that is wrong in one way.
type liar struct {
	bug string

	mu    sync.Mutex
	at    uint64
	calls int
	now   map[string]api.ServiceView
	old   map[string]api.ServiceView // a moment ago
}

func (l *liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/v1/definitions") {
		fmt.Fprint(w, "{}")
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	rare := l.calls%17 == 0
	v := l.now[r.URL.Path]
	if r.Method == http.MethodPut {
		old := v
		if match := r.Header.Get("If-Match"); match != "" && l.bug != "blind" {
			if want, _ := strconv.Unquote(match); want != strconv.FormatUint(v.Revision, 10) || rare &&
				l.bug == "refuses" {
				w.WriteHeader(http.StatusPreconditionFailed)
				return
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&v.Service); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if v.Count != old.Count {
			l.at++
			v.Revision = l.at
			if !rare || l.bug != "forgets" {
				l.now[r.URL.Path] = v
			}
			l.old[r.URL.Path] = old
		}
	} else if rare && l.bug == "stale" {
		v = l.old[r.URL.Path]
	}
	w.Header().Set("ETag", strconv.Quote(strconv.FormatUint(v.Revision, 10)))
	_ = json.NewEncoder(w).Encode(v)
}

// TestWrongAnswersAreFound checks servers with wrong answers, and a correct one.
func TestWrongAnswersAreFound(t *testing.T) {
	for _, bug := range []string{"", "stale", "forgets", "refuses", "blind"} {
		t.Run("bug:"+bug, func(t *testing.T) {
			l := &liar{bug: bug, at: 100, now: map[string]api.ServiceView{}, old: map[string]api.ServiceView{}}
			srv := httptest.NewServer(l)
			defer srv.Close()
			c := connect(t, srv.URL, "t")
			v := record(t, 400*time.Millisecond, history.Config{
				Servers: []*client.Client{c, c}, Workers: 4, Services: 2, Random: rand.New(rand.NewPCG(3, 4)),
			})
			if !v.Decided || v.Linearizable != (bug == "") {
				t.Errorf("%v", v)
			}
		})
	}
}
