package peers

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

const (
	// decisionTraceTimeout bounds the wait for the leader. A request can be answered without the trace.
	decisionTraceTimeout  = time.Second
	maxDecisionTraceBytes = 1 << 20
)

// decisionTraceReply answers a request for a decision trace; Found says that it was kept.
type decisionTraceReply struct {
	version
	Found         bool                  `json:"found"`
	DecisionTrace cluster.DecisionTrace `json:"grounds"`
}

// DecisionTrace returns the decision trace of an attempt's placement in a domain. It comes from this server if this
// server led then, else from the domain's leader. The result is false if neither has the trace, or the leader does not
// answer within a second.
func (p *Peers) DecisionTrace(ctx context.Context, domain string, task cluster.TaskID, attempt int) (
	cluster.DecisionTrace, bool,
) {
	if p.config.DecisionTrace != nil {
		if g, ok := p.config.DecisionTrace(task, attempt); ok {
			return g, true
		}
	}
	if p.Leads(domain) {
		return cluster.DecisionTrace{}, false
	}
	g, ok, err := p.askDecisionTrace(ctx, domain, task, attempt)
	if err != nil {
		p.config.Logger.Debug("the leader did not answer why a task was placed", "task", task, "error", err)
	}
	return g, ok && err == nil
}

// askDecisionTrace requests the trace from the leader.
func (p *Peers) askDecisionTrace(ctx context.Context, domain string, task cluster.TaskID, attempt int) (
	g cluster.DecisionTrace, found bool, err error,
) {
	ctx, cancel := context.WithTimeout(ctx, decisionTraceTimeout)
	defer cancel()
	leader, ok := p.leader(domain)
	if !ok || leader.API == "" || leader.ID == p.config.Server.ID {
		return g, false, errors.New("the leader's address is not known")
	}
	client, err := p.config.Dial(leader.API)
	if err != nil {
		return g, false, err
	}
	defer client.CloseIdleConnections()
	q := url.Values{"task": {string(task)}, "attempt": {strconv.Itoa(attempt)}}
	reply, err := requestReply[decisionTraceReply](ctx, client, http.MethodGet,
		leader.API+pathDecisionTrace+"?"+q.Encode(), nil, maxDecisionTraceBytes)
	return reply.DecisionTrace, reply.Found, err
}

// serveDecisionTrace answers another server with the decision trace that this server kept, whether or not it still
// leads.
func (p *Peers) serveDecisionTrace(w http.ResponseWriter, r *http.Request) {
	reply := decisionTraceReply{version: ourVersion()}
	if attempt, err := strconv.Atoi(r.URL.Query().Get("attempt")); err == nil && p.config.DecisionTrace != nil {
		reply.DecisionTrace, reply.Found = p.config.DecisionTrace(cluster.TaskID(r.URL.Query().Get("task")), attempt)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(reply) // a server that has disconnected repeats its request
}
