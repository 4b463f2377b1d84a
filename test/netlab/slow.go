package netlab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/internal/testkit"
)

// Slow delays new connections from other hosts to a TCP port of the host, in both directions. A delay of 0 ends this.
// Existing connections do not change.
func (h *Host) Slow(port int, delay time.Duration) {
	h.lab.tb.Helper()
	if p := h.slow[port]; p != nil {
		p.delay.Store(int64(delay))
		return
	}
	p, err := h.startProxy(port)
	if err != nil {
		h.lab.tb.Fatalf("slow down port %d of %s: %v", port, h.Name, err)
	}
	p.delay.Store(int64(delay))
	h.slow[port] = p
	h.lab.tb.Cleanup(func() { // what else is cleaned up after it reaches the port without the proxy
		h.lab.in(h.Space, "nft", "flush chain ip lab slow")
		p.close()
	})
	h.lab.in(h.Space, "nft", fmt.Sprintf("add rule ip lab slow iifname eth0 tcp dport %d redirect to :%s", port,
		p.port()))
}

// proxy carries the connections to one port of a host.
type proxy struct {
	host   *Host
	target string
	listen net.Listener
	delay  atomic.Int64

	mu      sync.Mutex
	over    bool
	open    map[net.Conn]bool
	running sync.WaitGroup
}

func (h *Host) startProxy(port int) (*proxy, error) {
	l, err := h.Listen("0.0.0.0:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{host: h, listen: l, open: map[net.Conn]bool{}, target: net.JoinHostPort(h.Address, strconv.Itoa(port))}
	p.running.Go(p.accept)
	return p, nil
}

func (p *proxy) port() string {
	_, port, _ := net.SplitHostPort(p.listen.Addr().String())
	return port
}

func (p *proxy) accept() {
	for {
		in, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.carry(in) })
	}
}

// carry connects one caller, and ends with both directions.
func (p *proxy) carry(in net.Conn) {
	out, err := p.host.Dial(p.host.lab.tb.Context(), "tcp4", p.target)
	if err != nil {
		_ = in.Close() // for the caller, the server does not answer
		return
	}
	if !p.keep(in, out) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pass(out, in) })
	both.Go(func() { p.pass(in, out) })
	both.Wait()
	p.forget(in, out)
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.over {
			_ = c.Close() // the lab is being cleared
			continue
		}
		p.open[c] = true
	}
	return !p.over
}

func (p *proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // both directions have ended
		delete(p.open, c)
	}
}

// chunk is the data of one read, and the time when it is due at the other side.
type chunk struct {
	bytes []byte
	due   time.Time
}

// pass copies one direction, each piece as late as the delay was when it arrived.
func (p *proxy) pass(to, from net.Conn) {
	pieces := make(chan chunk, 1024)
	p.running.Go(func() {
		for c := range pieces {
			testkit.Pause(p.host.lab.tb.Context(), time.Until(c.due))
			if _, err := to.Write(c.bytes); err != nil {
				_ = from.Close() // so that the reader ends too
			}
		}
		if half, ok := to.(*net.TCPConn); ok {
			_ = half.CloseWrite() // it may be closed already
		}
	})
	defer close(pieces)
	for {
		buffer := make([]byte, 32<<10)
		n, err := from.Read(buffer)
		if n > 0 {
			pieces <- chunk{buffer[:n], time.Now().Add(time.Duration(p.delay.Load()))}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				_ = to.Close() // a reset is passed on as an end
			}
			return
		}
	}
}

func (p *proxy) close() {
	p.mu.Lock()
	p.over = true
	for c := range p.open {
		_ = c.Close() // its connections are cut
	}
	p.mu.Unlock()
	_ = p.listen.Close() // so that accept ends
	p.running.Wait()
}
