package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/berthd/berth/internal/cluster"
)

// secretsKeyReply hands over a master key of secrets.
type secretsKeyReply struct {
	version
	// Text is the key as the file of a server holds it.
	Text string `json:"text"`
}

// SecretsKey asks the other servers, one after the other, for a master key of secrets, and returns its text from the
// first that has it. The error says of each why not.
func (p *Peers) SecretsKey(ctx context.Context, id string) (text string, err error) {
	var errs []error
	asked := false
	for e := range p.config.Tables.Snapshot().Servers() {
		s := e.Value
		if s.ID == p.config.Server.ID || s.API == "" {
			continue
		}
		asked = true
		text, err := p.askSecretsKey(ctx, s, id)
		if err == nil {
			return text, nil
		}
		errs = append(errs, fmt.Errorf("server %s: %w", s.Name, err))
	}
	if !asked {
		return "", errors.New("there is no other server to ask")
	}
	return "", errors.Join(errs...)
}

func (p *Peers) askSecretsKey(ctx context.Context, s *cluster.Server, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := p.config.Dial(s.API)
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		s.API+pathSecretsKey+"?"+url.Values{"id": {id}}.Encode(), nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", errors.New(plain(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK { // one of an older build does not know the question
		return "", readProblem(resp)
	}
	var reply secretsKeyReply
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReply)).Decode(&reply); err != nil || reply.Text == "" {
		return "", errors.New("its answer cannot be read") // without the error, which could quote it
	}
	return reply.Text, nil
}

// tellSecretsKey hands another server a master key, over the connection on which both have shown their certificates, as
// the first one was handed over when it joined. A server that was removed has a certificate for a while yet and gets
// none.
func (p *Peers) tellSecretsKey(w http.ResponseWriter, r *http.Request) {
	caller, id := p.config.Caller(r), r.URL.Query().Get("id")
	if _, member := p.config.Tables.Snapshot().Server(caller); !member || caller == "" {
		refuse(w, http.StatusForbidden,
			fmt.Sprintf("there is no server %q: keys are handed to members of the control plane alone", caller))
		return
	}
	text := ""
	if p.config.SecretsKey != nil && id != "" {
		text = p.config.SecretsKey(id)
	}
	if text == "" {
		refuse(w, http.StatusNotFound, "it lacks the key, too")
		return
	}
	p.config.Logger.Info("a secrets key was handed to another server", "key", id, "server", caller)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(secretsKeyReply{ourVersion(), text}) // who went away asks again
}
