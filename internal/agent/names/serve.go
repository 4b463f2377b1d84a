package names

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/pause"
)

// maxQuestionSize is the largest question over UDP, in bytes.
const maxQuestionSize = 4096

// Listener receives questions on one address, for both UDP and TCP.
type Listener struct {
	udp *net.UDPConn
	tcp *net.TCPListener
	at  netip.AddrPort
}

// Listen opens a listener. The machine need not have the address yet; port 0 means any port.
func Listen(ctx context.Context, at netip.AddrPort) (*Listener, error) {
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			if at.Addr().Is4() { // a bridge comes and goes with its tasks
				failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_FREEBIND, 1)
			}
		})
		return errors.Join(err, failed)
	}}
	l, err := c.Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, fmt.Errorf("answer names: %w", err)
	}
	tcp, isTCP := l.(*net.TCPListener)
	at, err = netip.ParseAddrPort(l.Addr().String()) // with the chosen port
	if err != nil || !isTCP {
		return nil, errors.Join(fmt.Errorf("answer names at %s: it is no address of TCP", l.Addr()), l.Close())
	}
	p, err := c.ListenPacket(ctx, "udp", at.String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("answer names: %w", err), l.Close())
	}
	udp, isUDP := p.(*net.UDPConn)
	if !isUDP {
		return nil, errors.Join(fmt.Errorf("answer names at %s: it is no address of UDP", at), l.Close(), p.Close())
	}
	return &Listener{udp: udp, tcp: tcp, at: at}, nil
}

// Address returns the address of the listener.
func (d *Listener) Address() netip.AddrPort { return d.at }

// Close closes a listener that is not served.
func (d *Listener) Close() error { return errors.Join(d.udp.Close(), d.tcp.Close()) }

// Serve answers questions of the permitted addresses until the context ends; then it closes the listener and waits for
// all begun answers.
func (s *Server) Serve(ctx context.Context, d *Listener, may func(from netip.Addr) bool) {
	s.mu.Lock()
	s.listeners[d.at] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, d.at)
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var begun sync.WaitGroup
	defer begun.Wait()
	stop := context.AfterFunc(ctx, func() { _ = d.Close() })
	defer func() {
		if stop() {
			_ = d.Close()
		}
	}()
	var both sync.WaitGroup
	both.Go(func() { s.packets(ctx, d, may, &begun) })
	both.Go(func() { s.accept(ctx, d, may, &begun) })
	both.Wait()
}

// packets reads questions over UDP. Questions over the limit get no answer: clients repeat them.
func (s *Server) packets(ctx context.Context, d *Listener, may func(netip.Addr) bool, begun *sync.WaitGroup) {
	buf := make([]byte, maxQuestionSize)
	for {
		n, from, err := d.udp.ReadFromUDPAddrPort(buf)
		if err != nil {
			if !s.shouldRetry(ctx, err) {
				return
			}
			continue
		}
		addr := from.Addr().Unmap()
		if !may(addr) || !s.questions.take(addr) {
			continue
		}
		question := append([]byte(nil), buf[:n]...)
		begun.Go(func() {
			defer s.questions.release(addr)
			within, cancel := context.WithTimeout(ctx, answerTimeout)
			defer cancel()
			if answer := s.answer(within, question, addr, false); answer != nil {
				_, _ = d.udp.WriteToUDPAddrPort(answer, from) // clients repeat a question without an answer
			}
		})
	}
}

// shouldRetry reports whether to read on from a socket after an error, and waits a moment before.
func (s *Server) shouldRetry(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return false
	}
	s.Logger.Warn("questions for names cannot be read; it is tried again", "error", err)
	return pause.For(ctx, 100*time.Millisecond) == nil
}

// accept accepts connections.
func (s *Server) accept(ctx context.Context, d *Listener, may func(netip.Addr) bool, begun *sync.WaitGroup) {
	for {
		c, err := d.tcp.AcceptTCP()
		if err != nil {
			if !s.shouldRetry(ctx, err) {
				return
			}
			continue
		}
		at, _ := netip.ParseAddrPort(c.RemoteAddr().String()) // a closed connection has no address and is not permitted
		from := at.Addr().Unmap()
		if !from.IsValid() || !may(from) || !s.connections.take(from) {
			_ = c.Close()
			continue
		}
		begun.Go(func() {
			defer s.connections.release(from)
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			defer func() { _ = c.Close() }()
			s.converse(ctx, c, from)
		})
	}
}

// converse answers the questions of a connection, one after another.
func (s *Server) converse(ctx context.Context, c net.Conn, from netip.Addr) {
	until := time.Now().Add(maxConnAge)
	for time.Now().Before(until) {
		_ = c.SetDeadline(time.Now().Add(connIdleTimeout)) // writes to a closed connection fail below
		question, err := readMessage(c)
		if err != nil {
			return
		}
		if !s.questions.take(from) {
			return
		}
		within, cancel := context.WithTimeout(ctx, answerTimeout)
		answer := s.answer(within, question, from, true)
		cancel()
		s.questions.release(from)
		if answer == nil || writeMessage(c, answer) != nil {
			return
		}
	}
}

// readMessage reads a message of a stream.
func readMessage(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(r, message)
	return message, err
}

// writeMessage writes a message to a stream.
func writeMessage(w io.Writer, message []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...))
	return err
}
