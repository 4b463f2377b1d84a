package peers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
)

const (
	// reasonsInterval is the least interval of requests to the leader, and the age at which a copy is requested again.
	reasonsInterval = time.Second
	// firstCopyTimeout bounds the time that the first call after a while waits for a copy.
	firstCopyTimeout = time.Second
	// reasonsTimeout bounds the time of an answer; the reasons of a million tasks are 40 MB.
	reasonsTimeout = 10 * time.Second
	// reasonsMaxAge is how long a copy is used while the leader does not answer.
	reasonsMaxAge = 15 * time.Second
)

// reasons is a copy of the leader's report on its last decision, at a server that does not lead.
type reasons struct {
	asked chan struct{} // a caller needs a newer copy

	mu    sync.Mutex
	tried chan struct{} // closed when the next try has ended
	copy  reasonsCopy
	since time.Time // when the leader last confirmed the copy
	last  time.Time // when the last try ended
	// waited is the try that a caller waited for in vain; no other caller waits for it.
	waited chan struct{}
}

// reasonsCopy is an answer of the leader; it does not change.
type reasonsCopy struct {
	startID string
	report  cluster.WaitingReport
	tasks   *cluster.TaskIndex    // the indices of the groups; nil without a copy
	all     *cluster.WaitingGroup // the reason of all tasks, unless nil
}

// leaderReasons has the reasons of the leaders of all domains. Safe for concurrent use.
type leaderReasons struct {
	*self
	work *sync.WaitGroup // of Run

	mu      sync.Mutex
	reasons map[string]*reasons // by domain
	// running is the context of Run, nil before and after it.
	running context.Context //nolint:containedctx // it ends the goroutines that begin with the first call for a domain
}

// start fetches copies for callers until the context ends.
func (l *leaderReasons) start(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = ctx
	for domain, r := range l.reasons { // order-free: each by itself
		l.work.Go(func() { l.fetchReasons(ctx, domain, r) })
	}
}

// stop begins no more goroutines.
func (l *leaderReasons) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = nil
}

// Waiting returns why a task of a domain waits. While this server leads the domain, the reason is from its own control
// plane. Otherwise it is from a copy of the leader's reasons, which may be about a second old, or some seconds if the
// queue is long. A copy is fetched only while there are callers. The first call after a while waits for a copy, up to a
// second.
func (l *leaderReasons) Waiting(domain string, task cluster.TaskID) (cluster.Waiting, bool) {
	if !l.Leads(domain) {
		return l.reasonsOf(domain).waiting(task)
	}
	if own := l.ownReasons(domain); own != nil {
		return own.Waiting(task)
	}
	return cluster.Waiting{}, false
}

// ownReasons returns the reasons of this server's control plane of a domain, or nil.
func (l *leaderReasons) ownReasons(domain string) Reasons {
	if l.config.Reasons == nil {
		return nil
	}
	return l.config.Reasons(domain)
}

// reasonsOf returns the copy of the reasons of a domain's leader. It is made, and kept up to date, from the first call
// for a domain on.
func (l *leaderReasons) reasonsOf(domain string) *reasons {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.reasons[domain]
	if r != nil {
		return r
	}
	r = &reasons{asked: make(chan struct{}, 1), tried: make(chan struct{})}
	if _, exists := l.config.Tables.Snapshot().DomainNumber(domain); !exists {
		return r
	}
	l.reasons[domain] = r
	if ctx := l.running; ctx != nil {
		l.work.Go(func() { l.fetchReasons(ctx, domain, r) })
	}
	return r
}

// Victims returns the attempts of a domain that will end for others, ordered by UUID, from the same sources as Waiting.
// It never waits for a copy. The result must not be changed.
func (l *leaderReasons) Victims(domain string) []cluster.Victim {
	if !l.Leads(domain) {
		return l.reasonsOf(domain).fresh(false).report.Victims
	}
	if own := l.ownReasons(domain); own != nil {
		return own.Victims()
	}
	return nil
}

func (r *reasons) waiting(task cluster.TaskID) (cluster.Waiting, bool) {
	c := r.fresh(true)
	g := c.all
	if c.tasks != nil {
		if i, ok := c.tasks.Find(task); ok {
			g = &c.report.Groups[i]
		}
	}
	if g == nil {
		return cluster.Waiting{}, false
	}
	return cluster.Waiting{Task: task, Refusals: g.Refusals, Sentence: g.Sentence, Promise: g.Promise}, true
}

// fresh returns the copy, or an empty one if the copy is too old, and has a newer one fetched. With wait it waits for
// the first copy.
func (r *reasons) fresh(wait bool) reasonsCopy {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.last) >= reasonsInterval {
		signal(r.asked)
	}
	if wait && now.Sub(r.since) > reasonsMaxAge && now.Sub(r.last) >= reasonsInterval && r.waited != r.tried {
		r.wait(r.tried)
	}
	if time.Since(r.since) > reasonsMaxAge {
		return reasonsCopy{}
	}
	return r.copy
}

// wait waits until a fetch has ended, for firstCopyTimeout at most. It releases r.mu, which is held, while it waits.
func (r *reasons) wait(try chan struct{}) {
	r.mu.Unlock()
	timer := time.NewTimer(firstCopyTimeout)
	defer timer.Stop()
	select {
	case <-try:
		r.mu.Lock()
	case <-timer.C:
		r.mu.Lock()
		r.waited = try
	}
}

// fetchReasons fetches a copy of a domain's reasons for callers of Waiting, with a pause after each.
func (l *leaderReasons) fetchReasons(ctx context.Context, domain string, r *reasons) {
	var from leaderClient
	defer from.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.asked:
		}
		began := time.Now()
		fresh, err := l.askLeader(ctx, domain, r, &from)
		if err != nil {
			from.close()
			l.config.Logger.Debug("the leader did not answer why tasks wait", "error", err)
		}
		r.mu.Lock()
		r.last = time.Now()
		if err == nil {
			r.copy, r.since = fresh, r.last
		}
		close(r.tried)
		r.tried = make(chan struct{})
		r.mu.Unlock()
		if pause.For(ctx, reasonsPause(r.last.Sub(began))) != nil {
			return
		}
	}
}

// reasonsPause returns the time between two requests for the leader's reasons: at least reasonsInterval. The reasons of
// a million tasks take the leader and this server a second or more, and an answer may take them a tenth of the time.
func reasonsPause(answer time.Duration) time.Duration {
	return min(max(reasonsInterval, 9*answer), reasonsMaxAge-reasonsTimeout)
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

// askLeader returns the leader's reasons, or the present copy if they did not change.
func (l *leaderReasons) askLeader(ctx context.Context, domain string, r *reasons, from *leaderClient) (
	reasonsCopy, error,
) {
	ctx, cancel := context.WithTimeout(ctx, reasonsTimeout)
	defer cancel()
	r.mu.Lock()
	have := r.copy
	r.mu.Unlock()
	leader, ok := l.leader(domain)
	if !ok || leader.API == "" || leader.ID == l.config.Server.ID {
		return have, errors.New("the leader's address is not known")
	}
	if from.api != leader.API {
		from.close()
		client, err := l.config.Dial(leader.API)
		if err != nil {
			return have, err
		}
		*from = leaderClient{leader.API, client}
	}
	q := url.Values{"after": {strconv.FormatUint(have.report.Version, 10)}, "life": {have.startID}}
	if domain != cluster.DefaultDomain {
		q.Set("domain", domain)
	}
	reply, err := requestReply[reasonsReply](ctx, from.client, http.MethodGet,
		leader.API+pathReasons+"?"+q.Encode(), nil, maxReasons)
	if err != nil {
		return have, err
	}
	if !reply.Changed {
		return have, nil
	}
	return reply.index(), nil
}

func (r *reasonsReply) index() reasonsCopy {
	c := reasonsCopy{startID: r.Life, report: r.WaitingReport}
	c.tasks = cluster.IndexTasks(func(yield func(cluster.TaskRange, int) bool) {
		for i := range r.Groups {
			for _, tasks := range r.Groups[i].Tasks {
				if !yield(tasks, i) {
					return
				}
			}
		}
	})
	for i := range r.Groups {
		if len(r.Groups[i].Tasks) == 0 {
			c.all = &r.Groups[i]
		}
	}
	return c
}

// serveReasons answers another server why tasks wait, if this server leads.
func (l *leaderReasons) serveReasons(w http.ResponseWriter, r *http.Request) {
	domain := cmp.Or(r.URL.Query().Get("domain"), cluster.DefaultDomain)
	own := l.ownReasons(domain)
	if !l.Leads(domain) || own == nil {
		refuse(w, http.StatusMisdirectedRequest, "this server does not lead")
		return
	}
	after, _ := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64) // 0, for all reasons, if it is malformed
	if r.URL.Query().Get("life") != l.startID {
		after = 0
	}
	reply := reasonsReply{version: ourVersion(), Life: l.startID}
	reply.WaitingReport = own.Reasons(after)
	if reply.Changed = reply.Version != after || after == 0; !reply.Changed {
		reply.Groups, reply.Victims = nil, nil
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(reply) // a server that has disconnected repeats its request
}
