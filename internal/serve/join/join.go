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
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/serve/datadir"
)

// JoinFile keeps the key, the request and then the answer of a join that has not ended, so that one that was
// interrupted is taken up where it was: a token is good for few uses.
const JoinFile = "join.json"

// exchangeTimeout bounds one server's answer to a request for a certificate.
const exchangeTimeout = 20 * time.Second

// Joiner is a machine that trades a join token for a certificate.
type Joiner struct {
	Dir     string // of its identity
	Self    pki.Subject
	Hosts   []string
	Name    string // of a server, for people
	PeerURL string // servers only, unless the store runs elsewhere
	Servers []string
	Token   string // the whole of it
}

// pendingJoin is what joinFile holds.
type pendingJoin struct {
	Name    string `json:"name"`
	PeerURL string `json:"peer_url,omitempty"`
	Request []byte `json:"request"`
	Key     []byte `json:"key"`
	// Reply is nil until it came.
	Reply *api.JoinReply `json:"reply,omitempty"`
}

// Join trades the token and writes the identity. It may be repeated until done was called.
func (j *Joiner) Join(ctx context.Context) (reply api.JoinReply, err error) {
	token, err := pki.ParseJoinToken(j.Token)
	if err != nil {
		return reply, err
	}
	if err := os.MkdirAll(j.Dir, 0o700); err != nil {
		return reply, fmt.Errorf("make the folder of the certificate: %w", err)
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
		if err := exchange(ctx, pki.Pinned(token.CAHash), j.Servers, "/v1/join", request, &reply); err != nil {
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

// prepare returns an interrupted join with the same authority, or a new one, which it keeps.
func (j *Joiner) prepare(token pki.JoinToken) (p pendingJoin, err error) {
	b, err := os.ReadFile(filepath.Join(j.Dir, JoinFile))
	if err == nil && json.Unmarshal(b, &p) == nil && p.Name == j.Self.Name && p.PeerURL == j.PeerURL &&
		(p.Reply == nil || token.CheckCA([]byte(p.Reply.Authority)) == nil) {
		return p, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return p, fmt.Errorf("read the join that was begun: %w", err)
	}
	p = pendingJoin{Name: j.Self.Name, PeerURL: j.PeerURL}
	if p.Request, p.Key, err = pki.NewRequest(j.Self, j.Hosts); err != nil {
		return p, err
	}
	return p, j.save(p)
}

// keep writes down how far a join got.
func (j *Joiner) save(p pendingJoin) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := datadir.ReplaceFile(filepath.Join(j.Dir, JoinFile), b); err != nil {
		return fmt.Errorf("keep the join that is begun: %w", err)
	}
	return nil
}

// Done forgets the join, all of whose results are kept elsewhere by now.
func (j *Joiner) Done() error {
	if err := os.Remove(filepath.Join(j.Dir, JoinFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("end the join: %w", err)
	}
	return nil
}

// RenewAt returns the Renew of a keeper whose certificates are signed by any of the servers.
func RenewAt(config func() *tls.Config, servers func() []string) func(context.Context, []byte) ([]byte, error) {
	return func(ctx context.Context, csr []byte) ([]byte, error) {
		var reply api.RenewReply
		err := exchange(ctx, config(), servers(), "/v1/renew", api.RenewRequest{Request: string(csr)}, &reply)
		return []byte(reply.Certificate), err
	}
}

// exchange posts a message to the first of several servers that can be reached and does its work. A refusal of one is
// that of all.
func exchange(ctx context.Context, config *tls.Config, servers []string, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: config, ForceAttemptHTTP2: true,
		DisableKeepAlives: true,
	}}
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
		errs = append(errs, fmt.Errorf("%s: %w", server, err))
		if e, ok := errors.AsType[*refusedError](err); ok && e.status/100 == 4 &&
			e.status != http.StatusTooManyRequests {
			break
		}
	}
	if len(errs) == 0 {
		return errors.New("no server is named by an https address")
	}
	return errors.Join(errs...)
}

// refusedError is a server's answer that is no success.
type refusedError struct {
	status int
	detail string
}

// Error returns what the server said.
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
