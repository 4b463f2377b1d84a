package schedulertest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/scheduling"
	"github.com/berthd/berth/internal/suite"
	"github.com/berthd/berth/internal/yardstick"
)

// bench is the model of a domain with its leader, and a scheduler under test. It answers the protocol of schedulers on
// loopback.
type bench struct {
	suite.T

	url   string
	began time.Time
	start func(instance string) (kill func())

	mu       sync.Mutex
	epoch    uint64
	feed     *scheduling.Feed
	revision uint64 // of the domain's record
	claim    *cluster.SchedulerClaim
	claims   []cluster.ClaimRequest
	nodes    map[string]*cluster.SchedulingNode
	groups   map[string]*cluster.SchedulingGroup
	// proposals are those that were answered with the status 200; at is when each arrived.
	proposals []cluster.Proposal
	at        []time.Time
	commands  []cluster.ProposalCommand // of all of them
	faults    []string
	// verdict, unless nil, refuses a placement before the model checks it.
	verdict func(c *cluster.ProposalCommand) (cluster.ReasonCode, string)
	// refusals counts how often a task was refused on a node, for a reason other than stale.
	refusals map[[2]string]int
	// broken, unless 0, is the status of all answers to proposals.
	broken int
	// ended has a channel of each started instance, closed at its end.
	ended []<-chan struct{}
	// readers counts the open states.
	readers int
}

func newBench(t suite.T, s Scheduler) *bench {
	b := &bench{
		T: t, began: time.Now(), revision: 10,
		nodes: map[string]*cluster.SchedulingNode{}, groups: map[string]*cluster.SchedulingGroup{},
		refusals: map[[2]string]int{},
	}
	b.begin(1)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	b.url = "http://" + l.Addr().String()
	mux := http.NewServeMux()
	const one = "/v1/domains/" + Domain
	mux.HandleFunc("GET "+one, b.serveDomain)
	mux.HandleFunc("POST "+one+"/claim", b.serveClaim)
	mux.HandleFunc("GET "+one+"/state", b.serveState)
	mux.HandleFunc("POST "+one+"/proposals", b.serveProposal)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		b.fault("a request of an unknown operation: %s %s", r.Method, r.URL.Path)
		problem(w, http.StatusNotFound, "there is no such operation")
	})
	server := &http.Server{Handler: b.authorized(mux), ReadHeaderTimeout: Limit}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-ended })
	b.start = func(instance string) func() {
		i := s.Start(b.url, instance)
		b.mu.Lock()
		b.ended = append(b.ended, i.Ended)
		b.mu.Unlock()
		kill := sync.OnceFunc(i.Kill)
		t.Cleanup(kill)
		return kill
	}
	return b
}

// begin begins the term of a leader with an epoch.
func (b *bench) begin(epoch uint64) {
	b.epoch = epoch
	b.feed = scheduling.NewFeed(epoch, func() time.Duration { return time.Since(b.began) + time.Hour }, func() {})
}

// authorized refuses requests without the token.
func (b *bench) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+Token {
			b.fault("a request without the access token: %s %s", r.Method, r.URL.Path)
			problem(w, http.StatusUnauthorized, "the access token is missing or wrong")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func problem(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{ // the scheduler may be gone
		"title": http.StatusText(status), "status": status, "detail": fmt.Sprintf(format, args...),
	})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the scheduler may be gone
}

// fault keeps a fault of the scheduler, which fails the case at its end.
func (b *bench) fault(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addFault(format, args...)
}

func (b *bench) addFault(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(b.faults, text) && len(b.faults) < 20 {
		b.faults = append(b.faults, text)
	}
}

// noFaults fails the case if the scheduler broke a rule of the protocol.
func (b *bench) noFaults() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.faults {
		b.Errorf("%s", f)
	}
}

// domainView is the domain as GET /v1/domains/{domain} and claims answer it, as far as schedulers need it.
type domainView struct {
	cluster.Domain
	Revision uint64 `json:"revision"`
}

func (b *bench) view() domainView {
	return domainView{Revision: b.revision, Domain: cluster.Domain{
		Name: Domain, Claim: b.claim, Number: 1,
		Scheduler: &cluster.DomainScheduler{
			Type: cluster.SchedulerExternal, Name: Name, TakeOver: cluster.Duration(TakeOver),
		},
	}}
}

func (b *bench) serveDomain(w http.ResponseWriter, _ *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	answer(w, b.view())
}

func (b *bench) serveClaim(w http.ResponseWriter, r *http.Request) {
	var asked cluster.ClaimRequest
	err := json.NewDecoder(r.Body).Decode(&asked)
	if err == nil {
		err = asked.Validate()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err != nil:
		b.addFault("a claim that cannot be read: %v", err)
		problem(w, http.StatusUnprocessableEntity, "%v", err)
		return
	case asked.Name != Name:
		b.addFault("a claim by the name %q, and the scheduler of the domain is %s", asked.Name, Name)
		problem(w, http.StatusConflict, "the domain is placed by the scheduler %s", Name)
		return
	}
	b.claims = append(b.claims, asked)
	next := &cluster.SchedulerClaim{Holder: asked.Name, Instance: asked.Instance, Since: time.Now().UTC()}
	if b.claim == nil || asked.Instance == "" || !b.claim.IsSame(next) {
		b.claim = next
		b.revision++
		b.publish()
	}
	answer(w, b.view())
}

// serveState streams the state until the term ends.
func (b *bench) serveState(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	feed := b.feed
	b.readers++
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.readers--
	}()
	w.Header().Set("Content-Type", "application/x-ndjson")
	out, since := json.NewEncoder(w), r.URL.Query().Get("since")
	for {
		lines := feed.Read(since)
		if lines.Revision != "" {
			if lines.Reset {
				_ = out.Encode(cluster.SchedulingLine{Reset: true}) // the scheduler may be gone
			}
			for _, text := range lines.Texts {
				_, _ = w.Write(append(text, '\n'))
			}
			_ = out.Encode(cluster.SchedulingLine{Revision: lines.Revision})
			_ = http.NewResponseController(w).Flush()
			since = lines.Revision
		}
		if lines.Ended || lines.Revision != "" && r.URL.Query().Get("follow") != "true" {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-lines.Changed:
		}
	}
}

func (b *bench) serveProposal(w http.ResponseWriter, r *http.Request) {
	var asked cluster.Proposal
	err := json.NewDecoder(r.Body).Decode(&asked)
	if err == nil {
		err = asked.Validate()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err != nil:
		b.addFault("a proposal that is not valid: %v", err)
		problem(w, http.StatusUnprocessableEntity, "%v", err)
		return
	case b.broken != 0:
		problem(w, b.broken, "the leader of the domain is not reached: retry")
		return
	case b.claim == nil || b.claim.Holder != Name || asked.DomainRevision != b.revision:
		err := scheduling.FencedError{Domain: Domain, Holder: Name, Claim: b.claim, Revision: b.revision}
		if b.claim != nil {
			err.Holder = b.claim.Holder
		}
		problem(w, http.StatusConflict, "%s", err.Error())
		return
	}
	b.proposals, b.at = append(b.proposals, asked), append(b.at, time.Now())
	b.commands = append(b.commands, asked.Commands...)
	_, current := b.feed.LookUp(asked.Base)
	a := cluster.ProposalAnswer{Results: make([]cluster.ProposalResult, len(asked.Commands))}
	for i := range asked.Commands {
		c, out := &asked.Commands[i], &a.Results[i]
		out.Task = c.Task
		if !current {
			out.Code, out.Message = cluster.ReasonStale, "the base is of another leader"
		} else {
			b.carryOut(c, out)
		}
		if out.Code != "" && out.Code != cluster.ReasonStale && c.Action == cluster.ProposePlace {
			pair := [2]string{string(c.Task), c.Node}
			if b.refusals[pair]++; b.refusals[pair] == maxRefusals {
				b.addFault("it repeats the placement of %s on %s, which was refused %d times", c.Task, c.Node,
					maxRefusals)
			}
		}
		if out.Accepted = out.Code == ""; out.Accepted {
			a.Accepted++
		} else {
			a.Refused++
		}
	}
	b.publish()
	answer(w, a)
}

// carryOut carries out a command, or gives the reason for its refusal.
func (b *bench) carryOut(c *cluster.ProposalCommand, out *cluster.ProposalResult) {
	g, i := b.pendingOf(c.Task)
	refuse := func(code cluster.ReasonCode, message string) { out.Code, out.Message = code, message }
	switch c.Action {
	case cluster.ProposeWait:
		if g == nil {
			refuse(cluster.ReasonStale, "the task is not pending")
		}
		return
	case cluster.ProposeMove, cluster.ProposeEvict:
		refuse(cluster.ReasonScheduler, "the model moves no tasks")
		return
	case cluster.ProposePlace:
	}
	if b.verdict != nil {
		if code, message := b.verdict(c); code != "" {
			refuse(code, message)
			return
		}
	}
	n := b.nodes[c.Node]
	switch {
	case g == nil:
		refuse(cluster.ReasonStale, "the task is not pending")
	case g.Pending[i].Held != "" || g.Pending[i].OnlyNode != "":
		b.addFault("it places %s, which is held or bound to a node", c.Task)
		refuse(cluster.ReasonHold, "the task is held, or Berth places it itself")
	case n == nil:
		refuse(cluster.ReasonStale, "the domain has no such node")
	case !n.Accepts:
		b.addFault("it proposes %s, which does not accept tasks", c.Node)
		refuse(cluster.ReasonNodeNotReady, "the node does not accept tasks")
	case slices.Contains(g.Pending[i].ExcludedNodes, c.Node):
		b.addFault("it proposes %s for %s, whose earlier attempt is there", c.Node, c.Task)
		refuse(cluster.ReasonOldAttempt, "an earlier attempt still runs there")
	case !n.Free.Holds(g.Demand):
		refuse(cluster.ReasonShortMemory, "the node has no room")
	default:
		b.run(g, i, n)
		out.UUID = string(c.Task) + "-attempt"
	}
}

// pendingOf returns the group in which a task is pending, and its position there; nil if it is not pending.
func (b *bench) pendingOf(task cluster.TaskID) (*cluster.SchedulingGroup, int) {
	for _, g := range b.groups {
		for i := range g.Pending {
			p := &g.Pending[i]
			r := cluster.TaskRange{First: p.Task, Further: p.Further}
			if !r.Has(task) {
				continue
			}
			// The task is apart from the others of its entry.
			split := cluster.Isolate([]cluster.Pending{{Task: p.Task, Further: p.Further}}, []cluster.TaskID{task})
			var parts []cluster.SchedulingPending
			for _, one := range split {
				part := *p
				part.Task, part.Further = one.Task, one.Further
				parts = append(parts, part)
			}
			g.Pending = slices.Replace(g.Pending, i, i+1, parts...)
			return g, i + slices.IndexFunc(parts, func(q cluster.SchedulingPending) bool { return q.Task == task })
		}
	}
	return nil, 0
}

// run has a pending task run on a node.
func (b *bench) run(g *cluster.SchedulingGroup, i int, n *cluster.SchedulingNode) {
	task := g.Pending[i].Task
	g.Pending = slices.Delete(g.Pending, i, i+1)
	g.Running++
	n.Free = n.Free.Sub(g.Demand)
	n.Tasks = append(n.Tasks, cluster.SchedulingTask{
		Task: task, UUID: string(task) + "-attempt", Group: g.ID, Demand: g.Demand,
	})
	slices.SortFunc(n.Tasks, func(a, b cluster.SchedulingTask) int { return cmp.Compare(a.Task, b.Task) })
}

// publish brings the feed to the model.
func (b *bench) publish() {
	set, remove := map[string][]byte{}, map[string][]byte{}
	text := func(l cluster.SchedulingLine) []byte {
		t, err := json.Marshal(l)
		if err != nil {
			panic(err)
		}
		return t
	}
	for name := range b.nodes {
		set["node/"+name] = text(cluster.SchedulingLine{Node: b.nodes[name]})
	}
	for _, name := range b.feed.Keys("node/") {
		if n := strings.TrimPrefix(name, "node/"); b.nodes[n] == nil {
			remove[name] = text(cluster.SchedulingLine{RemovedNode: n})
		}
	}
	for id := range b.groups {
		set["group/"+id] = text(cluster.SchedulingLine{Group: b.groups[id]})
	}
	holder := Name
	if b.claim != nil {
		holder = b.claim.Holder
	}
	set["domain"] = text(cluster.SchedulingLine{Domain: &cluster.SchedulingDomain{
		Name: Domain, Revision: b.revision, Scheduler: holder, Claim: b.claim,
	}})
	b.feed.Publish(set, remove)
}

// change changes the model, and publishes it.
func (b *bench) change(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do()
	b.publish()
}

// node adds a node.
func (b *bench) node(name string, size cluster.Room) *cluster.SchedulingNode {
	n := &cluster.SchedulingNode{
		Name: name, State: cluster.NodeReady, Accepts: true, Arch: "amd64", OS: "linux", Executors: []string{"process"},
		Capacity: size, Free: size,
	}
	b.nodes[name] = n
	return n
}

// service adds a service with pending tasks.
func (b *bench) service(name string, tasks, priority int, demand cluster.Room) *cluster.SchedulingGroup {
	g := &cluster.SchedulingGroup{
		ID: "main/" + name + "/" + name + "@1", Priority: priority, Demand: demand,
		Owner:      cluster.OwnerRef{Kind: cluster.KindService, Cluster: "main", Name: name},
		Definition: cluster.Ref{Name: name, Version: 1},
	}
	for i := range tasks {
		g.Pending = append(g.Pending, cluster.SchedulingPending{
			Task: cluster.ServiceTask("main", name, 1, i), Attempt: 1, Since: time.Now().UTC(),
		})
	}
	b.groups[g.ID] = g
	return g
}

// die has a node leave with its tasks, which are pending again.
func (b *bench) die(name string) {
	for _, t := range b.nodes[name].Tasks {
		g := b.groups[t.Group]
		g.Running--
		g.Pending = append(g.Pending, cluster.SchedulingPending{Task: t.Task, Attempt: 2, Since: time.Now().UTC()})
	}
	delete(b.nodes, name)
}

// await waits until check returns nil. It fails the case before the limit once no instance is left that could act.
func (b *bench) await(check func() error) {
	b.Helper()
	var ended *yardstick.Stopwatch
	suite.Eventually(b, Limit, func() error {
		err := check()
		switch {
		case err == nil || !b.haveEnded():
		case ended == nil:
			ended = yardstick.NewStopwatch()
		case ended.Elapsed() > lastAnswers:
			b.Fatalf("the scheduler ended by itself: %v", err)
		}
		return err
	})
}

// haveEnded reports whether all started instances have ended.
func (b *bench) haveEnded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ended := range b.ended {
		select {
		case <-ended:
		default:
			return false
		}
	}
	return len(b.ended) > 0
}

// placed waits until all tasks but so many are placed.
func (b *bench) placed(but int) {
	b.Helper()
	b.await(func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.faults) > 0 {
			return nil // they fail the case
		}
		left := 0
		for _, g := range b.groups {
			for _, p := range g.Pending {
				left += 1 + p.Further
			}
		}
		if left != but {
			return fmt.Errorf("%d tasks are without a place, want %d; %d proposals and %d claims arrived", left, but,
				len(b.proposals), len(b.claims))
		}
		return nil
	})
}

// on returns the number of tasks on each node.
func (b *bench) on() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := map[string]int{}
	for name := range maps.Keys(b.nodes) {
		n[name] = len(b.nodes[name].Tasks)
	}
	return n
}

// counts returns the numbers of claims and of answered proposals.
func (b *bench) counts() (claims, proposals int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.claims), len(b.proposals)
}
