package peers

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
)

// ErrNoLeader says that the leader of a domain is not known, or is not reached.
var ErrNoLeader = errors.New("the leader of the domain is not reached")

// leaderConnections are the connections for requests to leaders that end soon, by the address of the leader. Streams
// have connections of their own, so that an unread one blocks nothing.
type leaderConnections struct {
	mu      sync.Mutex
	clients map[string]*http.Client
}

// client returns the client for an address, and what to call after the request.
func (c *leaderConnections) client(api string, dial func(string) (*http.Client, error), stream bool) (
	client *http.Client, done func(), err error,
) {
	if stream {
		if client, err = dial(api); err != nil {
			return nil, nil, err
		}
		return client, client.CloseIdleConnections, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if client = c.clients[api]; client == nil {
		if client, err = dial(api); err != nil {
			return nil, nil, err
		}
		if c.clients == nil {
			c.clients = map[string]*http.Client{}
		}
		c.clients[api] = client
	}
	return client, func() {}, nil
}

// closeIdle closes the connections that no request uses.
func (c *leaderConnections) closeIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for api, client := range c.clients { // order-free: each by itself
		client.CloseIdleConnections()
		delete(c.clients, api)
	}
}

// AskLeader has the leader of a domain answer a request, at a path of Config.LeaderRequests: it passes the request on,
// and the answer back, however long that is. The caller has authorized the request. A stream gets a connection of its
// own. The error wraps ErrNoLeader; then nothing was answered.
func (p *Peers) AskLeader(w http.ResponseWriter, r *http.Request, domain, path string, stream bool) error {
	leader, ok := p.leader(domain)
	if !ok || leader.API == "" || leader.ID == p.config.Server.ID {
		return ErrNoLeader
	}
	target, err := url.Parse(leader.API)
	if err != nil {
		return fmt.Errorf("%w: its address: %w", ErrNoLeader, err)
	}
	client, done, err := p.connections.client(leader.API, p.config.Dial, stream)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoLeader, err)
	}
	defer done()
	var failed error
	proxy := httputil.ReverseProxy{
		Rewrite: func(out *httputil.ProxyRequest) {
			out.Out.URL.Scheme, out.Out.URL.Host = target.Scheme, target.Host
			out.Out.URL.Path, out.Out.URL.RawPath = pathLeader+path, ""
			out.Out.Host = target.Host
			out.Out.Header.Del("Authorization")
			out.Out.Header.Del("Cookie")
		},
		Transport:     client.Transport,
		FlushInterval: -1, // each line of a stream is passed on immediately
		ErrorHandler:  func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
		ModifyResponse: func(resp *http.Response) error {
			if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMisdirectedRequest {
				return errors.New("it does not lead any more, or is an older build")
			}
			return nil
		},
	}
	proxy.ServeHTTP(w, r)
	if failed != nil {
		return fmt.Errorf("%w: %w", ErrNoLeader, failed)
	}
	return nil
}

// serveLeader answers a request that another server passes on.
func (p *Peers) serveLeader(w http.ResponseWriter, r *http.Request) {
	if p.config.LeaderRequests == nil {
		refuse(w, http.StatusMisdirectedRequest, "this server leads no domain")
		return
	}
	http.StripPrefix(pathLeader, p.config.LeaderRequests).ServeHTTP(w, r)
}
