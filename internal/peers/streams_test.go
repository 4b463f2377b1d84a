package peers

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/internal/transport"
)

// limit is how long a test waits for what must happen.
const limit = 20 * time.Second

// site is one server over TLS on loopback.
type site struct {
	*Peers
	agents *agents
	http   *httptest.Server
	trust  *pki.Authority
	keeper *pki.Keeper
	conns  *tracked
	stop   func()
}

// tracked is a listener whose connections can be broken.
type tracked struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (l *tracked) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns = append(l.conns, c)
	}
	return c, err
}

func (l *tracked) breakAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
}

// newSites starts servers and waits until each has a link to the others.
func newSites(t *testing.T, ids ...string) map[string]*site {
	t.Helper()
	data := memory.New(memory.Options{})
	t.Cleanup(func() { _ = data.Close() })
	trust, sites := newTrust(t), map[string]*site{}
	for _, id := range ids {
		sites[id] = newSite(t, data, trust, id)
	}
	testkit.Eventually(t, limit, func() error {
		for id, s := range sites {
			reached := 0
			for _, st := range s.Status() {
				if st.Reached {
					reached++
				}
			}
			if reached != len(ids)-1 {
				return errors.New(id + " does not reach all others")
			}
		}
		return nil
	})
	return sites
}

// newTrust makes an authority.
func newTrust(t *testing.T) *pki.Authority {
	t.Helper()
	dir := t.TempDir()
	if err := pki.CreateAuthority(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	a, err := pki.OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// identity makes the certificate of a machine.
func identity(t *testing.T, trust *pki.Authority, s pki.Subject) *pki.Keeper {
	t.Helper()
	csr, key, err := pki.NewRequest(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := trust.Sign(csr, s, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := pki.WriteIdentity(dir, trust.CertificatePEM(), cert, key); err != nil {
		t.Fatal(err)
	}
	k, err := pki.OpenKeeper(pki.KeeperConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newSite(t *testing.T, data *memory.Engine, trust *pki.Authority, id string) *site {
	t.Helper()
	s := &site{agents: &agents{held: map[string]bool{}}}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Handler().ServeHTTP(w, r)
	}))
	s.http.EnableHTTP2 = true
	s.conns = &tracked{Listener: s.http.Listener}
	s.http.Listener = s.conns
	engine := data.Open(memory.Hooks{})
	tables := store.NewTables(store.TablesConfig{Engine: engine})
	began := time.Now()
	s.trust = trust
	s.keeper = identity(t, trust, pki.Subject{Role: cluster.RoleServer, Name: id})
	s.http.TLS = s.keeper.ServerTLS()
	s.Peers = New(Config{
		Server: cluster.Server{ID: id, API: "https://" + s.http.Listener.Addr().String()},
		Engine: engine,
		Tables: tables,
		Local:  s.agents,
		Dial: func(string) (*http.Client, error) {
			protocols := new(http.Protocols)
			protocols.SetHTTP2(true)
			return &http.Client{Transport: &http.Transport{
				Protocols:       protocols,
				TLSClientConfig: s.keeper.ClientTLS(),
			}}, nil
		},
		Clock: func() time.Duration { return time.Since(began) },
	})
	s.http.StartTLS()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = tables.Run(ctx) })
	all.Go(func() { _ = s.Run(ctx) })
	var once sync.Once
	s.stop = func() {
		once.Do(func() {
			cancel()
			all.Wait()
			s.conns.breakAll()
			s.http.Close()
			_ = engine.Close()
		})
	}
	t.Cleanup(s.stop)
	return s
}

// connect connects the agent of a node to a server, and waits until the other servers have its pulse.
func connect(t *testing.T, sites map[string]*site, node, at string, session uint64) {
	t.Helper()
	for id, s := range sites {
		s.agents.hold(node, id == at)
	}
	s := sites[at]
	s.config.Tables.SetPulse(node, cluster.Pulse{Session: session, Seq: 1, At: s.config.Clock(), Next: time.Second})
	testkit.Eventually(t, limit, func() error {
		for id, s := range sites {
			if known, here := s.holder(node); here != (id == at) || known != at && !here {
				return errors.New(id + " does not know where " + node + " is")
			}
		}
		return nil
	})
}

// agentEnd is the agent's end of a stream, over two pipes that close separately.
type agentEnd struct {
	req    transport.StreamRequest
	node   string
	in     *io.PipeReader // the bytes from the server's side
	out    *io.PipeWriter
	closed chan struct{} // the server side closed its end
}

// serverEnd is the dispatcher's end of it.
type serverEnd struct {
	in   *io.PipeReader
	out  *io.PipeWriter
	once sync.Once
	end  *agentEnd
}

func (s *serverEnd) Read(b []byte) (int, error)  { return s.in.Read(b) }
func (s *serverEnd) Write(b []byte) (int, error) { return s.out.Write(b) }
func (s *serverEnd) CloseWrite() error           { return s.out.Close() }
func (s *serverEnd) Close() error {
	s.once.Do(func() {
		_ = s.out.CloseWithError(errors.New("the server closed the stream"))
		_ = s.in.Close()
		close(s.end.closed)
	})
	return nil
}

// answer makes a server's agents answer; each stream arrives at the channel.
func (s *site) answer() <-chan *agentEnd {
	ends := make(chan *agentEnd, 16)
	s.agents.open = func(_ context.Context, node string, req transport.StreamRequest) (io.ReadWriteCloser, error) {
		toAgent, fromServer := io.Pipe()
		toServer, fromAgent := io.Pipe()
		end := &agentEnd{req: req, node: node, in: toAgent, out: fromAgent, closed: make(chan struct{})}
		ends <- end
		return &serverEnd{in: toServer, out: fromServer, end: end}, nil
	}
	return ends
}

func take[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	var v T
	select {
	case v = <-from:
	case <-testkit.Context(t, limit).Done():
		t.Fatalf("%s did not come", what)
	}
	return v
}

var ask = transport.StreamRequest{
	Kind: transport.StreamExec, Task: "c.web.1.0", UUID: "u",
	Exec: &transport.ExecRequest{Command: []string{"sh"}, Stdin: true},
}

func TestStreamsAreForwarded(t *testing.T) {
	sites := newSites(t, "s1", "s2", "s3")
	ends := sites["s2"].answer()
	connect(t, sites, "n1", "s2", 1)
	stream, err := sites["s1"].OpenStream(t.Context(), "n1", ask)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	agent := take(t, ends, "the stream")
	if diff := cmp.Diff(ask, agent.req); diff != "" || agent.node != "n1" {
		t.Errorf("the request changed on its way (-want +got):\n%s", diff)
	}
	// Both directions concurrently, with more bytes than any buffer holds.
	want := bytes.Repeat([]byte("berth "), 1<<20)
	var back []byte
	var all sync.WaitGroup
	all.Go(func() { _, _ = io.Copy(agent.out, agent.in); _ = agent.out.Close() })
	all.Go(func() { _, _ = stream.Write(want); _ = stream.(halfCloser).CloseWrite() })
	back, err = io.ReadAll(stream)
	all.Wait()
	if err != nil || !bytes.Equal(back, want) {
		t.Errorf("got %d bytes back and %v, want %d", len(back), err, len(want))
	}
	_ = stream.Close()
	take(t, agent.closed, "the close")
}

func TestHalfCloseOfEitherSide(t *testing.T) {
	sites := newSites(t, "s1", "s2")
	ends := sites["s2"].answer()
	connect(t, sites, "n1", "s2", 1)
	open := func() (io.ReadWriteCloser, *agentEnd) {
		stream, err := sites["s1"].OpenStream(t.Context(), "n1", ask)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = stream.Close() })
		return stream, take(t, ends, "the stream")
	}
	t.Run("the asker", func(t *testing.T) {
		stream, agent := open()
		if _, err := io.WriteString(stream, "input"); err != nil {
			t.Fatal(err)
		}
		_ = stream.(halfCloser).CloseWrite()
		if got, err := io.ReadAll(agent.in); string(got) != "input" || err != nil {
			t.Errorf("the agent read %q and %v, want the input and its end", got, err)
		}
		_, _ = io.WriteString(agent.out, "answer")
		_ = agent.out.Close()
		if got, err := io.ReadAll(stream); string(got) != "answer" || err != nil {
			t.Errorf("got %q and %v, want the answer after the input's end", got, err)
		}
	})
	t.Run("the agent", func(t *testing.T) {
		stream, agent := open()
		_, _ = io.WriteString(agent.out, "last words")
		_ = agent.out.Close()
		if got, err := io.ReadAll(stream); string(got) != "last words" || err != nil {
			t.Errorf("got %q and %v, want the agent's end", got, err)
		}
		if _, err := io.WriteString(stream, "more"); err != nil {
			t.Error(err)
		}
		_ = stream.(halfCloser).CloseWrite()
		if got, err := io.ReadAll(agent.in); string(got) != "more" || err != nil {
			t.Errorf("the agent read %q and %v, want what came after its own end", got, err)
		}
	})
}

func TestCancelReachesTheAgent(t *testing.T) {
	sites := newSites(t, "s1", "s2")
	ends := sites["s2"].answer()
	connect(t, sites, "n1", "s2", 1)
	for name, end := range map[string]func(cancel func(), stream io.Closer){
		"context": func(cancel func(), _ io.Closer) { cancel() },
		"close":   func(_ func(), stream io.Closer) { _ = stream.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := sites["s1"].OpenStream(ctx, "n1", ask)
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			agent := take(t, ends, "the stream")
			read := make(chan error, 2)
			go func() { _, err := stream.Read(make([]byte, 1)); read <- err }()
			go func() { // a write that waits, because there is no reader
				_, err := stream.Write(make([]byte, 64<<20))
				read <- err
			}()
			end(cancel, stream)
			take(t, agent.closed, "the close")
			for range 2 {
				if err := take(t, read, "the end of a call"); err == nil || errors.Is(err, io.EOF) {
					t.Errorf("got %v, want an error", err)
				}
			}
		})
	}
}

func TestBrokenStreamIsNoEnd(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(holder *site, agent *agentEnd)
		want   string
	}{
		"agent": {func(_ *site, agent *agentEnd) {
			_ = agent.out.CloseWithError(errors.New("the agent broke"))
		}, "server s2: the agent broke"},
		"server": {func(holder *site, _ *agentEnd) {
			holder.stop()
		}, "server s2: the connection to the other server broke"},
		"connection": {
			func(holder *site, _ *agentEnd) { holder.conns.breakAll() },
			"server s2: the connection to the other server broke",
		},
	} {
		t.Run(name, func(t *testing.T) {
			sites := newSites(t, "s1", "s2")
			ends := sites["s2"].answer()
			connect(t, sites, "n1", "s2", 1)
			stream, err := sites["s1"].OpenStream(t.Context(), "n1", ask)
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			agent := take(t, ends, "the stream")
			_, _ = io.WriteString(agent.out, "half a li")
			if _, err := io.ReadFull(stream, make([]byte, 9)); err != nil {
				t.Fatal(err)
			}
			go c.breaks(sites["s2"], agent)
			got, err := io.ReadAll(stream)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q and %v, want %q", got, err, c.want)
			}
			take(t, agent.closed, "the close")
		})
	}
}

func TestStreamOfAgentThatJustMoved(t *testing.T) {
	sites := newSites(t, "s1", "s2", "s3")
	connect(t, sites, "n1", "s2", 1)
	sites["s2"].agents.hold("n1", false)
	sites["s3"].agents.hold("n1", true)
	ends := sites["s3"].answer()
	stream, err := sites["s1"].OpenStream(t.Context(), "n1", ask)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	_ = take(t, ends, "the stream at s3").out.Close()
}

func TestWhyAStreamCannotBeOpened(t *testing.T) {
	sites := newSites(t, "s1", "s2", "s3")
	s1 := sites["s1"]
	refused := func(want ...string) {
		t.Helper()
		stream, err := s1.OpenStream(t.Context(), "n1", ask)
		if err == nil {
			_ = stream.Close()
			t.Fatal("it was opened")
		}
		for _, text := range want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("got %q, want %q in it", err, text)
			}
		}
	}
	refused("n1: no server holds a session of the node")

	connect(t, sites, "n1", "s2", 1)
	sites["s2"].agents.open = func(context.Context, string, transport.StreamRequest) (io.ReadWriteCloser, error) {
		return nil, errors.New("n1: the agent did not call back in time")
	}
	refused("n1 is connected to server s2", "the agent did not call back in time")

	sites["s2"].stop()
	refused("n1 is connected to server s2", "it cannot be reached")

	sites["s3"].agents.hold("n1", false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s1.OpenStream(ctx, "n1", ask); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

func TestLocalStreamsStayHere(t *testing.T) {
	sites := newSites(t, "s1")
	ends := sites["s1"].answer()
	sites["s1"].agents.hold("n1", true)
	stream, err := sites["s1"].OpenStream(t.Context(), "n1", ask)
	if err != nil {
		t.Fatal(err)
	}
	take(t, ends, "the stream")
	_ = stream.Close()
}

func TestUnreadStreamBlocksNothingElse(t *testing.T) {
	sites := newSites(t, "s1", "s2")
	ends := sites["s2"].answer()
	connect(t, sites, "n1", "s2", 1)
	stuck, err := sites["s1"].OpenStream(t.Context(), "n1", ask)
	if err != nil {
		t.Fatal(err)
	}
	agent := take(t, ends, "the stream")
	var all sync.WaitGroup
	all.Go(func() { _, _ = stuck.Write(make([]byte, 64<<20)) })     // the agent reads none of it
	all.Go(func() { _, _ = agent.out.Write(make([]byte, 64<<20)) }) // nor does the asker
	defer all.Wait()
	defer stuck.Close()
	for session := uint64(2); session < 4; session++ {
		connect(t, sites, "n2", "s1", session) // digests continue
		other, err := sites["s1"].OpenStream(t.Context(), "n1", ask)
		if err != nil {
			t.Fatal(err)
		}
		end := take(t, ends, "another stream")
		_ = end.out.Close()
		if _, err := io.ReadAll(other); err != nil {
			t.Error(err)
		}
		_ = other.Close()
	}
}

func TestStreamsNeedHTTP2(t *testing.T) {
	sites := newSites(t, "s1")
	c := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13},
		TLSNextProto:    map[string]func(string, *tls.Conn) http.RoundTripper{},
	}}
	defer c.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, sites["s1"].config.Server.API+pathStreams,
		http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusHTTPVersionNotSupported {
		t.Errorf("got %d, want 505", resp.StatusCode)
	}
}

func TestFramesOfTheWrongKind(t *testing.T) {
	head := func(kind byte, length uint32, body string) string {
		return string([]byte{kind, byte(length >> 24), byte(length >> 16), byte(length >> 8), byte(length)}) + body
	}
	for name, c := range map[string]struct{ in, read, want string }{
		"whole":           {head(frameData, 2, "ab") + head(frameData, 0, "") + head(frameEnd, 0, ""), "ab", ""},
		"torn head":       {head(frameData, 2, "ab") + "\x02\x00", "ab", "the connection to the other server broke"},
		"torn body":       {head(frameData, 9, "ab"), "ab", "the connection to the other server broke"},
		"no end":          {head(frameData, 2, "ab"), "ab", "the connection to the other server broke"},
		"failure":         {head(frameFail, 4, "disk"), "", "disk"},
		"torn failure":    {head(frameFail, 9, "disk"), "", "disk"},
		"too long":        {head(frameData, maxFrame+1, "ab"), "", "at most 65536 are allowed"},
		"opens again":     {head(frameOpen, 2, "{}"), "", "frame of kind 1 in the middle"},
		"unknown":         {head(77, 0, ""), "", "frame of kind 77"},
		"very long fails": {head(frameFail, 1<<31, "x"), "", "at most 65536 are allowed"},
	} {
		got, err := io.ReadAll(&frameReader{in: strings.NewReader(c.in)})
		text := ""
		if err != nil {
			text = err.Error()
		}
		if string(got) != c.read || !strings.Contains(text, c.want) || (c.want == "") != (err == nil) {
			t.Errorf("%s: got %q and %v, want %q and %q", name, got, err, c.read, c.want)
		}
	}
	if _, err := (&frameReader{in: strings.NewReader(head(frameOpen, maxOpen+1, ""))}).open(); err == nil {
		t.Error("a request of any length is read")
	}
}
