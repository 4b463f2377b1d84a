package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

const (
	// groundsWait is how long the leader is waited for: who asks can be answered without it.
	groundsWait = time.Second
	maxGrounds  = 1 << 20
)

// groundsReply answers a question for grounds; Found says that they are kept.
type groundsReply struct {
	version
	Found   bool            `json:"found"`
	Grounds cluster.Grounds `json:"grounds"`
}

// Grounds returns why an attempt of a task was placed where it was: what this server kept while it led, else what the
// leader did. It is not ok where neither did, or the leader does not answer within a second.
func (p *Peers) Grounds(ctx context.Context, task cluster.TaskID, attempt int) (cluster.Grounds, bool) {
	if p.config.Grounds != nil {
		if g, ok := p.config.Grounds(task, attempt); ok {
			return g, true
		}
	}
	if p.Leads() {
		return cluster.Grounds{}, false
	}
	g, ok, err := p.askGrounds(ctx, task, attempt)
	if err != nil {
		p.config.Logger.Debug("the leader did not tell why a task was placed", "task", task, "error", err)
	}
	return g, ok && err == nil
}

// askGrounds asks the leader.
func (p *Peers) askGrounds(ctx context.Context, task cluster.TaskID, attempt int) (g cluster.Grounds, found bool,
	err error,
) {
	ctx, cancel := context.WithTimeout(ctx, groundsWait)
	defer cancel()
	leader, ok := p.leader()
	if !ok || leader.API == "" || leader.ID == p.config.Server.ID {
		return g, false, errors.New("the leader's address is not known")
	}
	client, err := p.config.Dial(leader.API)
	if err != nil {
		return g, false, err
	}
	defer client.CloseIdleConnections()
	q := url.Values{"task": {string(task)}, "attempt": {strconv.Itoa(attempt)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, leader.API+pathGrounds+"?"+q.Encode(), nil)
	if err != nil {
		return g, false, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return g, false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK { // one of an older build does not know the question
		return g, false, readProblem(resp)
	}
	var reply groundsReply
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxGrounds)).Decode(&reply); err != nil {
		return g, false, fmt.Errorf("read why a task was placed: %w", err)
	}
	return reply.Grounds, reply.Found, nil
}

// tellGrounds answers another server why a task was placed, from what this one kept, whether it still leads or not.
func (p *Peers) tellGrounds(w http.ResponseWriter, r *http.Request) {
	reply := groundsReply{version: ourVersion()}
	if attempt, err := strconv.Atoi(r.URL.Query().Get("attempt")); err == nil && p.config.Grounds != nil {
		reply.Grounds, reply.Found = p.config.Grounds(cluster.TaskID(r.URL.Query().Get("task")), attempt)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(reply) // who went away asks again
}
