package etcd

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// network connects members on loopback through proxies. A proxy can stop passing bytes in one direction or both, like a
// network that drops packets; sent bytes arrive when it heals. The header of etcd's requests names the dialer, so the
// members speak plain HTTP.
type network struct {
	t  *testing.T
	mu sync.Mutex
	// cut holds the directions that are cut, by the ids of the members: from, to.
	cut    map[[2]string]bool
	healed chan struct{} // closed, and replaced, at every change

	lifetime context.Context
	running  sync.WaitGroup
}

func newNetwork(t *testing.T) *network {
	n := &network{t: t, cut: map[[2]string]bool{}, healed: make(chan struct{})}
	var end context.CancelFunc
	n.lifetime, end = context.WithCancel(context.Background())
	t.Cleanup(func() {
		end()
		n.running.Wait()
	})
	return n
}

// join puts a proxy before a member's listener: its PeerURL becomes the proxy's. self returns its id once it has one.
func (n *network) join(c *Config, self func() string) {
	n.t.Helper()
	u, err := url.Parse(c.PeerURL)
	if err != nil {
		n.t.Fatal(err)
	}
	c.PeerListen = u.Host
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.t.Fatal(err)
	}
	c.PeerURL = "http://" + l.Addr().String()
	context.AfterFunc(n.lifetime, func() { l.Close() })
	n.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			n.running.Go(func() { n.pass(client, c.PeerListen, self) })
		}
	})
}

// pass connects a dialer with the member that it dialed.
func (n *network) pass(client net.Conn, target string, self func() string) {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(n.lifetime, "tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(n.lifetime, func() { client.Close(); server.Close() })()
	head, from := sender(client)
	var both sync.WaitGroup
	both.Go(func() { n.copy(server, io.MultiReader(bytes.NewReader(head), client), from, self); server.Close() })
	both.Go(func() { n.copyBack(client, server, self, from); client.Close() })
	both.Wait()
}

// sender reads a request up to the end of its header, and returns that with the id of who sent it.
func sender(client net.Conn) (head []byte, from string) {
	one := make([]byte, 1)
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) && len(head) < 16384 {
		if _, err := client.Read(one); err != nil {
			break
		}
		head = append(head, one[0])
	}
	for line := range strings.Lines(string(head)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(name, "X-Server-From") {
			return head, strings.TrimSpace(value)
		}
	}
	return head, ""
}

func (n *network) copy(to io.Writer, source io.Reader, from string, self func() string) {
	n.stream(to, source, func() [2]string { return [2]string{from, self()} })
}

func (n *network) copyBack(to io.Writer, source io.Reader, self func() string, from string) {
	n.stream(to, source, func() [2]string { return [2]string{self(), from} })
}

// stream copies while the direction is not cut.
func (n *network) stream(to io.Writer, source io.Reader, direction func() [2]string) {
	buffer := make([]byte, 64<<10)
	for {
		count, err := source.Read(buffer)
		for count > 0 {
			n.mu.Lock()
			cut, healed := n.cut[direction()], n.healed
			n.mu.Unlock()
			if !cut {
				break
			}
			select {
			case <-healed:
			case <-n.lifetime.Done():
				return
			}
		}
		if _, failed := to.Write(buffer[:count]); err != nil || failed != nil {
			return
		}
	}
}

// set cuts exactly these directions.
func (n *network) set(directions ...[2]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
	for _, d := range directions {
		n.cut[d] = true
	}
	close(n.healed)
	n.healed = make(chan struct{})
}

// isolate cuts one member off, in the directions to it, from it, or both.
func (n *network) isolate(f *fleet, i int, to, from bool) {
	var directions [][2]string
	self := f.engines[i].MemberID()
	for _, e := range f.engines {
		if id := e.MemberID(); id != self {
			if to {
				directions = append(directions, [2]string{id, self})
			}
			if from {
				directions = append(directions, [2]string{self, id})
			}
		}
	}
	n.set(directions...)
}

// newPartitioned returns three members with a network between them.
func newPartitioned(t *testing.T) (*fleet, *network) {
	n := newNetwork(t)
	var mu sync.Mutex
	ids := map[int]string{}
	f := newFleet(t, 3, func(i int, c *Config) {
		n.join(c, func() string {
			mu.Lock()
			defer mu.Unlock()
			return ids[i]
		})
	})
	mu.Lock()
	defer mu.Unlock()
	for i, e := range f.engines {
		ids[i] = e.MemberID()
	}
	return f, n
}
