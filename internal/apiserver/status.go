package apiserver

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/control"
	"github.com/berthd/berth/internal/apiserver/planning"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/version"
)

func (s *Server) readStatus(w http.ResponseWriter, r *http.Request) error {
	snap, err := s.reads.ForRequest(r)
	if err != nil {
		return err
	}
	engine := s.engine.Ask(r.Context())
	v := s.status(snap, &engine)
	access.CallerOf(r.Context()).ShowStatus(&v)
	return respond.JSON(w, http.StatusOK, v)
}

// status is the state of the whole.
func (s *Server) status(snap *store.Snapshot, engine *control.EngineAnswer) api.Status {
	v := api.Status{
		Server: s.cfg.ServerID, Version: version.Current().Version, Domain: s.cfg.Domain, Index: snap.Revision(),
		Nodes: s.nodeCounts(snap), MassSilence: s.massSilence(snap), Store: control.StoreView(engine),
	}
	if e, ok := snap.Leader(s.cfg.Domain); ok {
		v.Leader = &api.LeaderView{
			ID: e.Value.Holder, Epoch: e.Value.Epoch, Incarnation: e.Value.Incarnation,
			Since: e.Value.Since,
		}
		if record, ok := snap.Server(e.Value.Holder); ok {
			v.Leader.Name = record.Value.Name
		}
	}
	if e, ok := snap.Recovery(s.cfg.Domain); ok && e.Value.State == cluster.RecoveryNeeded {
		v.Recovery = e.Value
	}
	if e, ok := snap.Domain(s.cfg.Domain); ok && e.Value.RescheduleUntil.After(s.cfg.Now()) {
		v.RescheduleUntil = e.Value.RescheduleUntil
	}
	if e, ok := snap.RunningRebalancing(s.cfg.Domain); ok {
		brief := planning.BriefOf(e.Value)
		v.Rebalancing = &brief
	}
	servers := s.servers.Views(snap, engine)
	for i := range servers {
		v.Servers.Total++
		if servers[i].State == api.ServerUp {
			v.Servers.Up++
		}
		if m := servers[i].Engine; m != nil && m.Learner {
			v.Servers.Learners++
		}
	}
	if v.Servers.Total == 0 { // a server alone writes no record
		v.Servers.Total, v.Servers.Up = 1, 1
	}
	if voters, _ := engine.Votes(""); voters > 0 {
		v.Servers.Quorum = control.Quorum(voters)
	}
	v.Alarms = append(s.alarms(&v, servers, engine), s.masterKeys.LackingKeys(snap)...)
	return v
}

// Shares of a limit from which on somebody should know.
const (
	nearQuota    = 0.8 // of the database's quota
	nearLowWater = 2   // times the low-water mark of the disk
)

// alarms says in sentences what somebody should read, the worst first.
func (s *Server) alarms(v *api.Status, servers []api.ServerView, engine *control.EngineAnswer) (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if r := v.Recovery; r != nil {
		say("the store went back: %s. Nothing is placed or stopped until `berth operator recover --adopt` or `--stop`",
			r.Cause)
	}
	if engine.Asked && engine.HealthErr != nil {
		say("the store could not be asked: %s", respond.ProblemOf(engine.HealthErr).Detail)
	}
	if st := v.Store; st != nil {
		switch {
		case !st.Quorum:
			say("the store has no quorum: writes and consistent reads wait until more servers are up")
		case !st.Writable:
			say("the store takes no writes: %s", orElse(st.Reason, "it does not say why"))
		case st.Quota > 0 && float64(st.Size) >= nearQuota*float64(st.Quota):
			say("the store's database takes %s of its quota of %s; at the quota it takes no writes", st.Size, st.Quota)
		case st.LowWater > 0 && st.Free < nearLowWater*st.LowWater:
			say("the disk of this server's store has %s free; below %s it takes no writes", st.Free, st.LowWater)
		}
		replaced := false
		for _, a := range st.Alarms {
			if strings.HasPrefix(a, store.AlarmReplaced) {
				if replaced {
					continue
				}
				replaced = true
				say("another server holds another store than this one: if that one was restored, this store " +
					"was replaced; stop this server and join it anew, from an empty data directory")
				continue
			}
			say("the store's engine raised the alarm %s", a)
		}
	}
	if v.Leader == nil || v.Leader.ID == "" {
		say("no server leads the domain %s", v.Domain)
	}
	for i := range servers {
		if sv := &servers[i]; sv.State == api.ServerDown {
			say("server %s is down: %s", control.ServerName(sv), sv.Reason)
		} else if sv.State == api.ServerUp && sv.Reason != "" {
			say("server %s is not reached: %s", control.ServerName(sv), sv.Reason)
		}
	}
	if s.cfg.Backups != nil {
		if err := s.cfg.Backups(); err != nil {
			say("%s", err)
		}
	}
	switch {
	case v.MassSilence && v.RescheduleUntil.IsZero():
		say("so many nodes fell silent at once that their tasks are not replaced; `berth operator silence " +
			"override --for 10m` overrides that")
	case v.MassSilence:
		say("many nodes are silent; the operator lets their tasks be replaced until %s",
			v.RescheduleUntil.UTC().Format(time.RFC3339))
	}
	return all
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// nodeCounts counts the domain's nodes by their state.
func (s *Server) nodeCounts(snap *store.Snapshot) map[cluster.NodeState]int {
	counts := map[cluster.NodeState]int{}
	for _, name := range nodeNames(snap) {
		if state, domain, _ := nodeState(snap, name); domain == s.cfg.Domain {
			counts[state]++
		}
	}
	return counts
}

// massSilence reports whether so many nodes fell silent at once that tasks are not replaced (P6.2). The leader decides
// that from what it hears; every server tells it alike from the leader's verdicts, which say when each node became
// suspect or down.
func (s *Server) massSilence(snap *store.Snapshot) bool {
	options, now := watcher.DefaultOptions(), s.cfg.Now()
	var verdicts []watcher.Verdict
	for e := range snap.Nodes() {
		if e.Value.Domain != s.cfg.Domain {
			continue
		}
		v := watcher.Verdict{Node: *e.Value, Heard: true}
		if h, ok := snap.Host(e.Value.Name); ok {
			v.Gone = h.Value.Gone
		}
		switch {
		case e.Value.State == cluster.NodeSuspect && e.Value.Until.After(now):
			// It is heard: it came back too often.
		case e.Value.State == cluster.NodeSuspect:
			v.Heard, v.Silence = false, options.Suspect+now.Sub(e.Value.Since)
		case e.Value.State == cluster.NodeDown:
			v.Heard, v.Silence = false, options.Down+now.Sub(e.Value.Since)
		}
		verdicts = append(verdicts, v)
	}
	// On a clock that began long before the oldest silence.
	return watcher.IsMassSilence(verdicts, time.Duration(now.UnixNano()), options)
}

func (s *Server) statusRoutes() []route.Route {
	return []route.Route{
		{
			Method: "GET", Path: "/v1/status", Name: "readStatus",
			Summary: "The state of the whole: leader, servers, nodes, store, and what somebody should look at.",
			Role:    cluster.RoleViewer, Shared: true, Query: []route.Parameter{route.Consistent()},
			Reply: reflect.TypeFor[api.Status](),
			Serve: s.readStatus,
		},
	}
}
