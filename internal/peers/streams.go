package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/berthd/berth/internal/transport"
)

// openStreamTimeout bounds the time that another server may take to open a forwarded stream. It is longer than the time
// for which that server waits for the agent.
const openStreamTimeout = 15 * time.Second

// ErrNoServer says that no known server has the node's session.
var ErrNoServer = errors.New("no server holds a session of the node")

// OpenStream opens a byte stream to an agent: directly if its session is at this server, else through the server whose
// digest had the node's newest session. If the other end supports it, the stream has CloseWrite, which ends the
// caller's direction. The caller closes the stream; the end of ctx closes it too. Errors name the asked server. A
// stream is forwarded only once. A server that no longer holds the node refuses it, and the others are asked.
func (p *Peers) OpenStream(ctx context.Context, node string, req transport.StreamRequest) (io.ReadWriteCloser, error) {
	holder, here := p.holder(node)
	if here {
		return p.config.Local.OpenStream(ctx, node, req)
	}
	err := fmt.Errorf("%s: %w", node, ErrNoServer)
	for _, l := range p.candidates(holder) {
		s, one := p.forward(ctx, l, node, req)
		if one == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var answer *wireError
		misdirected := errors.As(one, &answer) && answer.status == http.StatusMisdirectedRequest
		switch {
		case misdirected:
			continue // it does not have the node's session
		case l.id == holder:
			return nil, fmt.Errorf("%s is connected to %s: %w", node, l, one)
		default:
			err = fmt.Errorf("%s: %w; %s was asked: %w", node, ErrNoServer, l, one)
		}
	}
	if holder != "" && p.link(holder) == nil {
		return nil, fmt.Errorf("%s was connected to server %s, which is no member of the control plane any more", node,
			holder)
	}
	return nil, err
}

// holder returns the server whose digest had the node's newest session, or here for this server. A newer session
// elsewhere takes precedence over one that this server believes to have.
func (v *liveness) holder(node string) (holder string, here bool) {
	v.mu.Lock()
	h, ok := v.remotePulses[node]
	v.mu.Unlock()
	pulse, _ := v.config.Tables.Pulse(node)
	elsewhere := ok && h.matches(pulse)
	if !elsewhere && v.config.Local.Holds(node) {
		return "", true
	}
	return h.from, false
}

// Holder returns the id of the server that a node's agent is connected to in its newest session that this server knows
// of. It returns "" if no such server is known, or the server is gone. It returns immediately.
func (v *liveness) Holder(node string) string {
	holder, here := v.holder(node)
	if here {
		return v.config.Server.ID
	}
	pulse, _ := v.config.Tables.Pulse(node)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lastDigests[holder].cut || v.remotePulses[node].session != pulse.Session {
		return ""
	}
	return holder
}

// candidates returns the servers to try: first the node's last known server, then all that answered last. The agent may
// have moved a moment ago.
func (v *liveness) candidates(holder string) []*link {
	v.mu.Lock()
	defer v.mu.Unlock()
	var first, rest []*link
	for id, l := range v.links { // order-free: sorted below
		if reached, _, _ := l.state(); id == holder {
			first = append(first, l)
		} else if reached {
			rest = append(rest, l)
		}
	}
	slices.SortFunc(rest, func(a, b *link) int { return bytes.Compare([]byte(a.id), []byte(b.id)) })
	return append(first, rest...)
}

// forward opens a stream through another server, over a connection of its own, so that an unread stream does not block
// other calls.
func (p *Peers) forward(ctx context.Context, l *link, node string, req transport.StreamRequest) (_ io.ReadWriteCloser,
	err error,
) {
	open, err := json.Marshal(streamOpen{version: ourVersion(), Server: p.config.Server.ID, Node: node, Stream: req})
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	var first bytes.Buffer
	if err := (&frameWriter{out: &first}).frame(frameOpen, open); err != nil {
		return nil, err
	}
	client, err := p.config.Dial(l.api)
	if err != nil {
		return nil, fmt.Errorf("it cannot be reached: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	in, out := io.Pipe()
	defer func() {
		if err != nil {
			cancel(err)
			_ = in.CloseWithError(err)
			client.CloseIdleConnections()
		}
	}()
	// The HTTP transport closes the body when the connection breaks, which must end writes that wait in the pipe.
	body := struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&first, in), in}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.api+pathStreams, body)
	if err != nil {
		return nil, err
	}
	late := fmt.Errorf("it did not open the stream within %v", openStreamTimeout)
	timer := time.AfterFunc(openStreamTimeout, func() { cancel(late) })
	resp, err := client.Do(r) //nolint:bodyclose // by the stream's Close
	timer.Stop()
	switch {
	case errors.Is(context.Cause(ctx), late):
		if err == nil {
			_ = resp.Body.Close()
		}
		return nil, late
	case err != nil:
		return nil, fmt.Errorf("it cannot be reached: %w", err)
	case resp.StatusCode != http.StatusOK:
		defer resp.Body.Close()
		return nil, readProblem(resp)
	}
	s := &forwarded{from: l.String(), reader: frameReader{in: resp.Body}, writer: frameWriter{out: out}}
	s.free = func() {
		cancel(io.ErrClosedPipe)
		_ = in.CloseWithError(io.ErrClosedPipe)
		_ = resp.Body.Close()
		client.CloseIdleConnections()
	}
	s.detach = context.AfterFunc(ctx, s.free) // the end of ctx does not end a waiting write
	return s, nil
}

// forwarded is the requesting server's end of a forwarded stream.
type forwarded struct {
	from   string
	reader frameReader
	writer frameWriter
	detach func() bool
	free   func()
}

// Read reads the agent's data. It returns io.EOF only if the agent ended its direction.
func (s *forwarded) Read(b []byte) (int, error) {
	n, err := s.reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s: %w", s.from, err)
	}
	return n, err
}

// Write sends to the agent.
func (s *forwarded) Write(b []byte) (int, error) { return s.writer.Write(b) }

// CloseWrite ends the caller's direction.
func (s *forwarded) CloseWrite() error { return s.writer.end(nil) }

// Close ends both directions immediately.
func (s *forwarded) Close() error {
	s.detach()
	s.free()
	return nil
}
