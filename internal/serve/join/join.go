// Package join lets a machine join a control plane with a token: it verifies the authority and gets a certificate.
package join

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/serve/datadir"
)

// JoinFile keeps the key, the request and the answer of a join in progress. An interrupted join continues with them,
// because a token has few uses.
const JoinFile = "join.json"

const (
	// exchangeTimeout bounds the time for one server's answer to a certificate request.
	exchangeTimeout = 20 * time.Second
	// maxTries is the number of times that a join asks servers that are slow or busy.
	maxTries = 5
	// shortestPause is the time between the first two tries. It doubles.
	shortestPause = 500 * time.Millisecond
)

// Joiner trades a join token for a certificate.
type Joiner struct {
	Dir     string // the directory of the identity
	Self    pki.Subject
	Hosts   []string
	Name    string // a server's display name
	PeerURL string // set for servers with a store of their own
	Servers []string
	Token   string // the complete token
	Dial    Dial
}

// Dial opens the connection to a server at "host:port". Nil is that of package net.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// pendingJoin is the content of JoinFile.
type pendingJoin struct {
	Name    string `json:"name"`
	PeerURL string `json:"peer_url,omitempty"`
	Request []byte `json:"request"`
	Key     []byte `json:"key"`
	// Reply is nil until a server has answered.
	Reply *api.JoinReply `json:"reply,omitempty"`
}

// Join trades the token and writes the identity. A caller may repeat it until it calls Done.
func (j *Joiner) Join(ctx context.Context) (reply api.JoinReply, err error) {
	token, err := pki.ParseJoinToken(j.Token)
	if err != nil {
		return reply, err
	}
	if err := os.MkdirAll(j.Dir, 0o700); err != nil {
		return reply, fmt.Errorf("create the folder of the certificate: %w", err)
	}
	pending, err := j.prepare(token)
	if err != nil {
		return reply, err
	}
	if pending.Reply == nil {
		request := api.JoinRequest{
			Token: j.Token, Name: j.Self.Name, Request: string(pending.Request),
			ServerName: j.Name, PeerURL: j.PeerURL,
		}
		if err := j.join(ctx, pki.Pinned(token.CAHash), request, &reply); err != nil {
			return reply, fmt.Errorf("join: %w", err)
		}
		if err := token.CheckCA([]byte(reply.Authority)); err != nil {
			return reply, fmt.Errorf("join: %w", err)
		}
		pending.Reply = &reply
		if err := j.save(pending); err != nil {
			return reply, err
		}
	}
	reply = *pending.Reply
	if j.Self.Role == cluster.RoleServer {
		if err := pki.WriteAuthority(j.Dir, []byte(reply.Authority), []byte(reply.AuthorityKey)); err != nil {
			return reply, fmt.Errorf("join: %w", err)
		}
	}
	if err := pki.WriteIdentity(j.Dir, []byte(reply.Authority), []byte(reply.Certificate), pending.Key); err != nil {
		return reply, fmt.Errorf("join: %w", err)
	}
	return reply, nil
}

// join asks the servers until one answers, maxTries times if they are slow or busy. A server counts a repeated request
// once.
func (j *Joiner) join(ctx context.Context, config *tls.Config, request api.JoinRequest, to *api.JoinReply) error {
	between := pause.Backoff{Shortest: shortestPause, Longest: 8 * shortestPause}
	for tries := 1; ; tries++ {
		err := exchange(ctx, newHTTPClient(config, j.Dial), j.Servers, "/v1/join", request, to)
		if err == nil || tries == maxTries || !isTemporary(err) {
			return err
		}
		if err := between.Wait(ctx); err != nil {
			return err
		}
	}
}

// isTemporary reports whether the same exchange may succeed later: a server did not answer in time, or was busy.
func isTemporary(err error) bool {
	if e, ok := errors.AsType[*refusedError](err); ok {
		return !e.isFinal()
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// prepare returns the interrupted join with the same authority, or saves a new one.
func (j *Joiner) prepare(token pki.JoinToken) (p pendingJoin, err error) {
	b, err := os.ReadFile(filepath.Join(j.Dir, JoinFile))
	if err == nil && json.Unmarshal(b, &p) == nil && p.Name == j.Self.Name && p.PeerURL == j.PeerURL &&
		(p.Reply == nil || token.CheckCA([]byte(p.Reply.Authority)) == nil) {
		return p, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return p, fmt.Errorf("read the unfinished join: %w", err)
	}
	p = pendingJoin{Name: j.Self.Name, PeerURL: j.PeerURL}
	if p.Request, p.Key, err = pki.NewRequest(j.Self, j.Hosts); err != nil {
		return p, err
	}
	return p, j.save(p)
}

// save writes JoinFile.
func (j *Joiner) save(p pendingJoin) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := datadir.ReplaceFile(filepath.Join(j.Dir, JoinFile), b); err != nil {
		return fmt.Errorf("save the unfinished join: %w", err)
	}
	return nil
}

// Done deletes JoinFile. The caller has saved all results before.
func (j *Joiner) Done() error {
	if err := os.Remove(filepath.Join(j.Dir, JoinFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("end the join: %w", err)
	}
	return nil
}

// RenewAt returns a function that renews a certificate at any of the servers, for pki.Keeper.
func RenewAt(config func() *tls.Config, dial Dial, servers func() []string,
) func(context.Context, []byte) ([]byte, error) {
	return func(ctx context.Context, csr []byte) ([]byte, error) {
		var reply api.RenewReply
		request := api.RenewRequest{Request: string(csr)}
		err := exchange(ctx, newHTTPClient(config(), dial), servers(), "/v1/renew", request, &reply)
		return []byte(reply.Certificate), err
	}
}

// newHTTPClient returns a client that closes each connection after its request.
func newHTTPClient(config *tls.Config, dial Dial) *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: config, ForceAttemptHTTP2: true, DisableKeepAlives: true, DialContext: dial,
	}}
}

// exchange posts a message to the first server that can be reached and is able to answer. A refusal by one server is
// final.
func exchange(ctx context.Context, client *http.Client, servers []string, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	var errs []error
	for _, server := range servers {
		if !strings.HasPrefix(server, "https://") {
			continue
		}
		err := post(ctx, client, strings.TrimSuffix(server, "/")+path, body, out)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err = fmt.Errorf("%s: %w", server, err)
		if e, ok := errors.AsType[*refusedError](err); ok && e.isFinal() {
			return err
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return errors.New("no server has an https address")
	}
	return errors.Join(errs...)
}

// refusedError is an answer with an error status.
type refusedError struct {
	status int
	detail string
}

// isFinal reports whether other servers, and a later try, would refuse as well.
func (e *refusedError) isFinal() bool {
	return e.status/100 == 4 && e.status != http.StatusTooManyRequests
}

// Error returns the detail of the answer.
func (e *refusedError) Error() string { return e.detail }

func post(ctx context.Context, client *http.Client, url string, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return plainNetError(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if res.StatusCode/100 != 2 {
		problem := api.Problem{}
		if json.Unmarshal(answer, &problem) != nil || problem.Detail == "" {
			problem.Detail = res.Status
		}
		for _, f := range problem.Faults {
			problem.Detail += "; " + f.Path + ": " + f.Message
		}
		return &refusedError{res.StatusCode, problem.Detail}
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}
