package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/control"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/publishing"
	"github.com/berthd/berth/internal/store"
)

// Limits from which the operator should know.
const (
	nearQuota    = 0.8 // share of the database's quota
	nearLowWater = 2   // multiple of the disk's low-water mark
)

// gapAlarmAge is how long after a publisher counted lost events the status shows them.
const gapAlarmAge = 24 * time.Hour

// alarms returns sentences for the operator, the worst first.
func (a *API) alarms(v *api.Status, servers []api.ServerView, engine *control.EngineAnswer) (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if r := v.Recovery; r != nil {
		say("the store went back: %s. Nothing is placed or stopped until `berth operator recover --adopt` or `--stop`",
			r.Cause)
	}
	if engine.Asked && engine.HealthErr != nil {
		say("the store could not be asked: %s", respond.ProblemOf(engine.HealthErr).Detail)
	}
	all = append(all, storeAlarms(v.Store)...)
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
	if a.Backups != nil {
		if err := a.Backups(); err != nil {
			say("%s", err)
		}
	}
	switch {
	case v.MassSilence && v.RescheduleUntil.IsZero():
		say("so many nodes fell silent together that their tasks are not replaced; `berth operator silence " +
			"override --for 10m` overrides that")
	case v.MassSilence:
		say("many nodes are silent; the operator lets their tasks be replaced until %s",
			v.RescheduleUntil.UTC().Format(time.RFC3339))
	}
	return all
}

// storeAlarms returns sentences about the state of the store, which is nil if it is not known.
func storeAlarms(st *api.StoreView) (all []string) {
	if st == nil {
		return nil
	}
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	switch {
	case !st.Quorum && st.Reason != "" && st.Reason != store.ErrUnavailable.Error():
		say("the store answers no consistent reads, and writes wait: %s", st.Reason)
	case !st.Quorum:
		say("the store has no quorum: writes and consistent reads wait until more servers are up")
	case !st.Writable:
		say("the store takes no writes: %s", cmp.Or(st.Reason, "it does not say why"))
	case st.Quota > 0 && float64(st.Size) >= nearQuota*float64(st.Quota):
		say("the store's database takes %s of its quota of %s; at the quota it takes no writes", st.Size, st.Quota)
	case st.LowWater > 0 && st.Free < nearLowWater*st.LowWater:
		say("the disk of this server's store has %s free; below %s it takes no writes", st.Free, st.LowWater)
	}
	replaced := false
	for _, a := range st.Alarms {
		if strings.HasPrefix(a, store.AlarmLimited) {
			say("the store limits the rate of requests and refused some of this server: writes and starts are " +
				"late. Ask its operator for a higher limit (limits.request_limits of Consul)")
			continue
		}
		if strings.HasPrefix(a, store.AlarmReplaced) {
			if replaced {
				continue
			}
			replaced = true
			say("another server holds another store than this one: if that one was restored, this store " +
				"was replaced; stop this server and join again from an empty directory")
			continue
		}
		say("the store's engine raised the alarm %s", a)
	}
	return all
}

// publisherAlarms returns a sentence for each publisher that keeps the event log from being trimmed, or lost events.
func publisherAlarms(snap *store.Snapshot, now time.Time) (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for e := range snap.Publishers() {
		p := e.Value
		switch left := publishing.BacklogOf(snap, p); {
		case left.Lost > 0:
			say("publisher %s has sent no events since %s, and the full event log dropped %d batches of them unsent. "+
				"Check its system and the log of the leader; once it sends again, its system must read the present "+
				"state from the API", p.Name, p.At.UTC().Format(time.RFC3339), left.Lost)
		case left.Waiting > publishing.KeptBatches:
			say("publisher %s has %d batches of events to send. At %d batches or %s the event log drops the oldest; "+
				"check its system and the log of the leader before that", p.Name, left.Waiting, publishing.MaxBatches,
				publishing.MaxBytes)
		case !p.LostAt.IsZero() && now.Sub(p.LostAt) < gapAlarmAge:
			say("publisher %s lost %d batches of events, the last of them found at %s: its system must read the "+
				"present state from the API (`berth events --type publisher.gap` lists the gaps)", p.Name, p.Lost,
				p.LostAt.UTC().Format(time.RFC3339))
		}
	}
	return all
}

// domainAlarms returns a sentence for each domain but the shown one that needs the operator, and for each domain, the
// shown one too, whose external scheduler is gone.
func (a *API) domainAlarms(snap *store.Snapshot, shown string) (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, name := range snap.Domains() {
		if e, ok := snap.Domain(name); ok && e.Value.TakenOver() {
			say("the scheduler %s of the domain %s is gone, and Berth's own places its tasks: %s. It claims the "+
				"domain again once it runs", e.Value.Scheduler.Name, name, e.Value.Claim.Reason)
		}
		if name == shown {
			continue
		}
		if l, ok := snap.Leader(name); !ok || l.Value.Holder == "" {
			say("no server leads the domain %s", name)
		}
		if e, ok := snap.Recovery(name); ok && e.Value.State == cluster.RecoveryNeeded {
			say("the store of the domain %s went back: %s. `berth operator recover` decides for all domains", name,
				e.Value.Cause)
		}
		if e, _ := snap.Domain(name); a.Views.IsMassSilence(snap, name) &&
			(e.Value == nil || !e.Value.RescheduleUntil.After(a.Now())) {
			say("so many nodes of the domain %s fell silent together that their tasks are not replaced; `berth "+
				"operator silence override --domain %s --for 10m` overrides that", name, name)
		}
	}
	return all
}

// foreignRecords returns a sentence for each cluster and each node of a domain that does not exist. Writes of such
// records are refused, but another program may have stored them. The sentences name clusters, so a token that is
// limited to some clusters must not see them.
func foreignRecords(snap *store.Snapshot) (all []string) {
	unknown := func(domain string) bool {
		_, exists := snap.DomainNumber(domain)
		return domain != "" && !exists
	}
	for e := range snap.Clusters() {
		if c := e.Value; unknown(c.Domain) {
			all = append(all, fmt.Sprintf("cluster %s is in the domain %s, which does not exist: its tasks wait. Make "+
				"the domain (kind: Domain), or apply the cluster with another one", c.Name, c.Domain))
		}
	}
	for e := range snap.Hosts() {
		if h := e.Value; unknown(h.Domain) {
			all = append(all, fmt.Sprintf("node %s is in the domain %s, which does not exist: it gets no tasks. "+
				"`berth node domain %s DOMAIN` gives it to another one", h.Name, h.Domain, h.Name))
		}
	}
	for e := range snap.Nodes() {
		if n := e.Value; unknown(n.Domain) {
			all = append(all, fmt.Sprintf("node %s belongs to the domain %s, which does not exist: it gets no tasks. "+
				"`berth node domain %s DOMAIN --force` takes it over", n.Name, n.Domain, n.Name))
		}
	}
	return all
}
