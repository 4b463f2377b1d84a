package names

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// maxUpstreams is how many resolvers are asked, one after another; upstreamTimeout applies to each.
	maxUpstreams    = 3
	upstreamTimeout = 1500 * time.Millisecond
)

// forward asks the node's resolvers and returns the first answer.
func (s *Server) forward(ctx context.Context, q *query) []byte {
	upstreams := s.others()
	if len(upstreams) == 1 {
		upstreams = append(upstreams, upstreams[0]) // a packet may be lost
	}
	for _, u := range upstreams {
		answer, err := s.ask(ctx, q, u)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			s.Logger.Debug("a resolver does not answer", "resolver", u, "error", err)
			continue
		}
		binary.BigEndian.PutUint16(answer, q.header.ID)
		if !q.stream && len(answer) > q.size {
			return q.truncated(answer)
		}
		return answer
	}
	return q.fail(dnsmessage.RCodeServerFailure)
}

// others returns the resolvers that are not the server itself.
func (s *Server) others() (list []netip.AddrPort) {
	all := s.Upstreams()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range all {
		if !s.listeners[u] && len(list) < maxUpstreams {
			list = append(list, u)
		}
	}
	return list
}

// truncated returns an answer without records, so that the client asks again over TCP.
func (q *query) truncated(answer []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(answer)
	if err != nil {
		return q.fail(dnsmessage.RCodeServerFailure)
	}
	h.Truncated = true
	m := dnsmessage.Message{Header: h, Questions: []dnsmessage.Question{q.Question}}
	text, err := m.Pack()
	if err != nil {
		return q.fail(dnsmessage.RCodeServerFailure)
	}
	return text
}

// ask sends the unchanged question under a new ID to a resolver, over the client's transport.
func (s *Server) ask(ctx context.Context, q *query, at netip.AddrPort) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, upstreamTimeout)
	defer cancel()
	network := "udp"
	if q.stream {
		network = "tcp"
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, at.String())
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	id := uint16(rand.Uint32())
	text := append([]byte(nil), q.text...)
	binary.BigEndian.PutUint16(text, id)
	if q.stream {
		if err := writeMessage(c, text); err != nil {
			return nil, err
		}
		answer, err := readMessage(c)
		if err != nil {
			return nil, err
		}
		return answer, q.judge(answer, id)
	}
	if _, err := c.Write(text); err != nil {
		return nil, err
	}
	buf := make([]byte, 1<<16)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return nil, err
		}
		if err := q.judge(buf[:n], id); err == nil {
			return append([]byte(nil), buf[:n]...), nil
		}
	}
}

// judge returns why a message is not an answer to the question.
func (q *query) judge(answer []byte, id uint16) error {
	var p dnsmessage.Parser
	h, err := p.Start(answer)
	if err != nil {
		return err
	}
	if !h.Response || h.ID != id {
		return errors.New("it is not an answer to the question")
	}
	asked, err := p.Question()
	if errors.Is(err, dnsmessage.ErrSectionDone) && h.RCode != dnsmessage.RCodeSuccess {
		return nil // a refusal may leave out the question
	}
	if err != nil {
		return err
	}
	if asked.Type != q.Type || asked.Class != q.Class || !strings.EqualFold(asked.Name.String(), q.Name.String()) {
		return fmt.Errorf("it is about %s", asked.Name)
	}
	return nil
}
