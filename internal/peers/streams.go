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

// openPatience is how long another server may take until a forwarded stream is open: longer than it waits for the
// agent itself.
const openPatience = 15 * time.Second

// ErrNoServer says that no server of the control plane is known to hold the node's session.
var ErrNoServer = errors.New("no server holds a session of the node")

// OpenStream opens a byte stream to an agent: at this server where its session is here, else through the server that
// last told of the node's newest session. The stream also has CloseWrite, which ends what the caller sends, where the
// other end can tell that. The caller closes it; the end of ctx closes it too. Errors name the server that was asked. A
// stream is passed on once only: a server that no longer holds the node says so, and the others are asked.
func (p *Peers) OpenStream(ctx context.Context, node string, req transport.StreamRequest) (io.ReadWriteCloser, error) {
	told, here := p.holder(node)
	if here {
		return p.config.Local.OpenStream(ctx, node, req)
	}
	err := fmt.Errorf("%s: %w", node, ErrNoServer)
	for _, l := range p.candidates(told) {
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
			continue // it does not hold the node
		case l.id == told:
			return nil, fmt.Errorf("%s is connected to %s: %w", node, l, one)
		default:
			err = fmt.Errorf("%s: %w; %s was asked: %w", node, ErrNoServer, l, one)
		}
	}
	if told != "" && p.link(told) == nil {
		return nil, fmt.Errorf("%s was connected to server %s, which is no member of the control plane any more", node,
			told)
	}
	return nil, err
}

// holder returns the server that last told of the node's newest session, or here for this one. A newer session
// elsewhere beats one that this server still thinks it has.
func (p *Peers) holder(node string) (told string, here bool) {
	p.mu.Lock()
	h, ok := p.heard[node]
	p.mu.Unlock()
	pulse, _ := p.config.Tables.Pulse(node)
	elsewhere := ok && h.wrote(pulse)
	if !elsewhere && p.config.Local.Holds(node) {
		return "", true
	}
	return h.from, false
}

// Holder returns the id of the server that a node's agent is connected to, as far as this server has heard; "" where
// none is known, or the one that was is gone. It returns at once.
func (p *Peers) Holder(node string) string {
	told, here := p.holder(node)
	if here {
		return p.config.Server.ID
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last[told].cut {
		return ""
	}
	return told
}

// candidates are the servers to ask: the one that told of the node, then all that answered last, because the agent may
// have moved within the last moment.
func (p *Peers) candidates(told string) []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	var first, rest []*link
	for id, l := range p.links { // order-free: sorted below
		if reached, _, _ := l.state(); id == told {
			first = append(first, l)
		} else if reached {
			rest = append(rest, l)
		}
	}
	slices.SortFunc(rest, func(a, b *link) int { return bytes.Compare([]byte(a.id), []byte(b.id)) })
	return append(first, rest...)
}

// forward opens a stream through another server, over a connection of its own: what nobody reads would in the end
// hold up everything else on it.
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
	// The transport closes the body where the connection breaks: that must end what waits in the pipe.
	body := struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&first, in), in}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.api+pathStreams, body)
	if err != nil {
		return nil, err
	}
	late := fmt.Errorf("it did not open the stream within %v", openPatience)
	timer := time.AfterFunc(openPatience, func() { cancel(late) })
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
	s.detach = context.AfterFunc(ctx, s.free) // the end of ctx alone does not reach a write that waits
	return s, nil
}

// forwarded is the asker's end of a stream that another server carries.
type forwarded struct {
	from   string
	reader frameReader
	writer frameWriter
	detach func() bool
	free   func()
}

// Read reads what the agent sends. Its end is io.EOF only where the agent ended it.
func (s *forwarded) Read(b []byte) (int, error) {
	n, err := s.reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s: %w", s.from, err)
	}
	return n, err
}

// Write sends to the agent.
func (s *forwarded) Write(b []byte) (int, error) { return s.writer.Write(b) }

// CloseWrite ends what this side sends.
func (s *forwarded) CloseWrite() error { return s.writer.end(nil) }

// Close ends both directions at once.
func (s *forwarded) Close() error {
	s.detach()
	s.free()
	return nil
}
