package reverse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/testkit"
)

const (
	serverA = "https://192.0.2.1:7071"
	serverB = "https://192.0.2.2:7071"
)

// world has the agent of one passive node.
type world struct {
	*testing.T
	acceptor *Acceptor
	address  string
	end      context.CancelFunc // of the agent
	ended    chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t}
	w.start("127.0.0.1:0")
	t.Cleanup(func() { w.stop() })
	return w
}

// start starts an agent at an address.
func (w *world) start(address string) {
	w.Helper()
	var err error
	if w.acceptor, err = Listen(address, slog.New(slog.DiscardHandler)); err != nil {
		w.Fatal(err)
	}
	if w.address == "" {
		w.address = w.acceptor.Addr().String() // a later agent has the same
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.end, w.ended = cancel, make(chan struct{})
	go func(a *Acceptor, ended chan struct{}) {
		a.Run(ctx)
		close(ended)
	}(w.acceptor, w.ended)
}

func (w *world) stop() {
	w.end()
	<-w.ended
}

// open opens connections to the agent.
func (w *world) open(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", w.address)
}

// eventually requires that something holds within a minute.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() error {
		if !holds() {
			return errors.New("not so: " + what)
		}
		return nil
	})
}

// server starts a server that answers each line with its address.
func (w *world) server(address string) *Dialer {
	w.Helper()
	d := NewDialer(address, slog.New(slog.DiscardHandler))
	w.Cleanup(func() { _ = d.Close() })
	go func() {
		for {
			c, err := d.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				line := make([]byte, 6)
				if _, err := io.ReadFull(c, line); err == nil {
					fmt.Fprintf(c, "%s from %s", line, address)
				}
			}()
		}
	}()
	return d
}

// call uses a connection of the server, and returns its answer.
func (w *world) call(address string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := w.acceptor.Dial(ctx, address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.Write([]byte("hello!")); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

// wantAnswer requires that a call reaches the server.
func (w *world) wantAnswer(address string) {
	w.Helper()
	got, err := w.call(address)
	if want := "hello! from " + address; got != want || err != nil {
		w.Fatalf("the answer is %q, %v; want %q", got, err, want)
	}
}

// Two servers dial a node. Each call of the agent reaches the server with its address, and many calls at a time.
func TestAgentUsesConnectionsOfServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, address := range []string{serverA, serverB} {
		w.server(address).Keep("n1", w.open)
	}
	results := make(chan error)
	const calls = 20
	for i := range calls {
		go func() {
			address := []string{serverA, serverB}[i%2]
			got, err := w.call(strings.TrimPrefix(address, "https://"))
			if err == nil && got != "hello! from "+address {
				err = errors.New(got)
			}
			results <- err
		}()
	}
	for range calls {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// An agent starts before its servers, ends and starts again. The server reaches it each time, and says why it does not
// in the meantime.
func TestAgentAndServerRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.server(serverA)
	first.Keep("n1", w.open)
	w.wantAnswer(serverA)
	w.stop()
	eventually(t, "the server notices the end of the agent", func() bool {
		_, unreached := first.Reached()
		return unreached == 1 && strings.Contains(fmt.Sprint(first.Problem("n1")), "refused")
	})
	w.start(w.address)
	w.wantAnswer(serverA)
	eventually(t, "the server reaches the agent", func() bool {
		reached, _ := first.Reached()
		return reached == 1 && first.Problem("n1") == nil
	})
	// The server ends: its unused connection is not used any more.
	_ = first.Close()
	eventually(t, "the agent notices the end of the server", func() bool { return len(w.acceptor.Servers()) == 0 })
	second := w.server(serverA)
	second.Keep("n1", w.open)
	w.wantAnswer(serverA)
	second.Drop("n1")
	eventually(t, "the connection is closed", func() bool { return len(w.acceptor.Servers()) == 0 })
}

// A connection that its server ends before it is used is forgotten.
func TestEndedConnectionIsNotUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var opened []net.Conn
	for range 3 {
		c, err := w.open(t.Context())
		if err == nil {
			err = writeGreeting(c, serverA)
		}
		if err != nil {
			t.Fatal(err)
		}
		opened = append(opened, c)
	}
	unused := func(n int) func() bool {
		return func() bool {
			w.acceptor.mu.Lock()
			defer w.acceptor.mu.Unlock()
			return len(w.acceptor.unused[serverA]) == n
		}
	}
	eventually(t, "three connections are there", unused(3))
	_ = opened[0].Close()
	_ = opened[2].Close()
	eventually(t, "one is left", unused(1))
	c, err := w.acceptor.Dial(t.Context(), serverA)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, want := c.RemoteAddr().String(), opened[1].LocalAddr().String(); got != want {
		t.Errorf("the agent uses the connection from %s, want %s", got, want)
	}
	if _, err := opened[1].Write([]byte("later")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "later" {
		t.Errorf("the connection says %q, %v", b, err)
	}
}

// Dial ends with its context, and the error names the server and the address of the node.
func TestDialEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	_, err := w.acceptor.Dial(ctx, serverA)
	if want := "the server " + serverA + " has not connected to this node at " + w.address + ": enough"; err == nil ||
		err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
}

// Strangers connect to the agent: none of what they send is used, and their number is limited.
func TestStrangers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, text := range map[string]string{
		"nothing":            "",
		"no server":          "GET / HTTP/1.1\r\n",
		"no https":           greetingWord + "http://192.0.2.1:7071\n",
		"no port":            greetingWord + "https://192.0.2.1\n",
		"too long":           greetingWord + "https://" + strings.Repeat("a", maxGreeting) + ":1\n",
		"more than the line": greetingWord + serverA + "\nmore",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := w.open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			if text == "" {
				_ = c.(*net.TCPConn).CloseWrite()
			}
			if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("the agent answers %d bytes, %v; want the end of the connection", n, err)
			}
		})
	}
	t.Run("many of one server", func(t *testing.T) {
		t.Parallel()
		for range maxUnused + 3 {
			c, err := w.open(t.Context())
			if err == nil {
				err = writeGreeting(c, serverB)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
		}
		eventually(t, "the connections are counted", func() bool {
			w.acceptor.mu.Lock()
			defer w.acceptor.mu.Unlock()
			return len(w.acceptor.unused[serverB]) == maxUnused
		})
	})
}
