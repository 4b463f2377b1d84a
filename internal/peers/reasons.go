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
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

const (
	// reasonsEvery is how often the leader is asked at most, and how old a copy may be before it is asked again.
	reasonsEvery = time.Second
	// firstWait is how long the first question after a while waits for a copy.
	firstWait = time.Second
	// reasonsKept is how long a copy is answered from when the leader does not tell more.
	reasonsKept = 15 * time.Second
)

// reasons is the copy of why tasks wait, of a server that does not lead.
type reasons struct {
	asked chan struct{} // somebody wants a copy that is newer

	mu    sync.Mutex
	tried chan struct{} // closed when the next try has ended
	copy  reasonsCopy
	since time.Time // when the leader last confirmed the copy
	last  time.Time // when the last try ended
	// waited is the try that somebody waited for in vain: nobody waits for it again.
	waited chan struct{}
}

// reasonsCopy is what the leader told; it does not change.
type reasonsCopy struct {
	life    string
	version uint64
	groups  []cluster.WaitingGroup
	tasks   map[cluster.TaskID]int // index of the group
	all     *cluster.WaitingGroup  // stands for all tasks, unless nil
}

// Waiting returns why a task waits: from this server's own plane while it leads, else from a copy of the
// leader's, which is fetched while somebody asks, and may be a second old or so. The first call after a while waits for
// it, up to a second.
func (p *Peers) Waiting(task cluster.TaskID) (cluster.Waiting, bool) {
	if p.Leads() {
		if p.config.Reasons == nil {
			return cluster.Waiting{}, false
		}
		return p.config.Reasons.Waiting(task)
	}
	return p.reasons.waiting(task)
}

func (r *reasons) waiting(task cluster.TaskID) (cluster.Waiting, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.last) >= reasonsEvery {
		signal(r.asked)
	}
	if now.Sub(r.since) > reasonsKept && now.Sub(r.last) >= reasonsEvery && r.waited != r.tried {
		r.wait(r.tried)
	}
	g := r.copy.all
	if i, ok := r.copy.tasks[task]; ok {
		g = &r.copy.groups[i]
	}
	if g == nil || time.Since(r.since) > reasonsKept {
		return cluster.Waiting{}, false
	}
	return cluster.Waiting{Task: task, Refusals: g.Refusals, Sentence: g.Sentence}, true
}

// wait waits until a try has ended, a short time at most. r.mu is held, but not while it waits.
func (r *reasons) wait(try chan struct{}) {
	r.mu.Unlock()
	timer := time.NewTimer(firstWait)
	defer timer.Stop()
	select {
	case <-try:
		r.mu.Lock()
	case <-timer.C:
		r.mu.Lock()
		r.waited = try
	}
}

// fetchReasons fetches a copy whenever somebody asked, at most once in reasonsEvery.
func (p *Peers) fetchReasons(ctx context.Context) {
	var from leaderClient
	defer from.close()
	r := &p.reasons
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.asked:
		}
		fresh, err := p.askLeader(ctx, &from)
		if err != nil {
			from.close()
			p.config.Logger.Debug("the leader did not tell why tasks wait", "error", err)
		}
		r.mu.Lock()
		r.last = time.Now()
		if err == nil {
			r.copy, r.since = fresh, r.last
		}
		close(r.tried)
		r.tried = make(chan struct{})
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(reasonsEvery):
		}
	}
}

// leaderClient is the connection to the server that leads.
type leaderClient struct {
	api    string
	client *http.Client
}

func (c *leaderClient) close() {
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
	*c = leaderClient{}
}

// askLeader returns the leader's reasons: the present copy where they did not change.
func (p *Peers) askLeader(ctx context.Context, from *leaderClient) (reasonsCopy, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p.reasons.mu.Lock()
	have := p.reasons.copy
	p.reasons.mu.Unlock()
	leader, ok := p.leader()
	if !ok || leader.API == "" || leader.ID == p.config.Server.ID {
		return have, errors.New("the leader's address is not known")
	}
	if from.api != leader.API {
		from.close()
		client, err := p.config.Dial(leader.API)
		if err != nil {
			return have, err
		}
		*from = leaderClient{leader.API, client}
	}
	q := url.Values{"after": {strconv.FormatUint(have.version, 10)}, "life": {have.life}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, leader.API+pathReasons+"?"+q.Encode(), nil)
	if err != nil {
		return have, err
	}
	resp, err := from.client.Do(req)
	if err != nil {
		return have, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return have, readProblem(resp)
	}
	var reply reasonsReply
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReasons)).Decode(&reply); err != nil {
		return have, fmt.Errorf("read why tasks wait: %w", err)
	}
	if !reply.Changed {
		return have, nil
	}
	return reply.index(), nil
}

func (r *reasonsReply) index() reasonsCopy {
	c := reasonsCopy{life: r.Life, version: r.Version, groups: r.Groups, tasks: map[cluster.TaskID]int{}}
	for i := range r.Groups {
		if len(r.Groups[i].Tasks) == 0 {
			c.all = &r.Groups[i]
		}
		for _, task := range r.Groups[i].Tasks {
			c.tasks[task] = i
		}
	}
	return c
}

// tellReasons answers another server why tasks wait, where this one leads.
func (p *Peers) tellReasons(w http.ResponseWriter, r *http.Request) {
	if !p.Leads() || p.config.Reasons == nil {
		refuse(w, http.StatusMisdirectedRequest, "this server does not lead")
		return
	}
	after, _ := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64) // 0 for what cannot be read: all is told
	if r.URL.Query().Get("life") != p.life {
		after = 0
	}
	reply := reasonsReply{version: ourVersion(), Life: p.life}
	reply.Version, reply.Groups = p.config.Reasons.Reasons(after)
	if reply.Changed = reply.Version != after || after == 0; !reply.Changed {
		reply.Groups = nil
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(reply) // who went away asks again
}
