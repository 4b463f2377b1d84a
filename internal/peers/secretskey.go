package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/berthd/berth/internal/cluster"
)

// secretsKeyReply carries a master key of secrets.
type secretsKeyReply struct {
	version
	// Text is the key in the format of a server's file.
	Text string `json:"text"`
}

// SecretsKey requests a master key of secrets from the other servers, one after the other, and returns the first text.
// The error has the reason of each server.
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
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	client, err := p.config.Dial(s.API)
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	reply, err := requestReply[secretsKeyReply](ctx, client, http.MethodGet,
		s.API+pathSecretsKey+"?"+url.Values{"id": {id}}.Encode(), nil, maxReply)
	switch {
	case errors.Is(err, errUnreadable), err == nil && reply.Text == "":
		return "", errUnreadable // without its cause, which could quote the key
	case err != nil:
		return "", errors.New(describeError(err))
	}
	return reply.Text, nil
}

// serveSecretsKey sends another server a master key, over a connection with both certificates, as the first key is sent
// when a server joins. A removed server still has a certificate for a while; it gets no key.
func (p *Peers) serveSecretsKey(w http.ResponseWriter, r *http.Request) {
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
	// a server that has disconnected repeats its request
	_ = json.NewEncoder(w).Encode(secretsKeyReply{ourVersion(), text})
}
