// Package scaling decides the counts of services with scaling for a leader, by what their tasks use and by the clock.
package scaling

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/writes"
	"github.com/berthd/berth/internal/logic/scaler"
	"github.com/berthd/berth/internal/store"
)

const (
	// scaleInterval is the time between two decisions about the counts of services with scaling.
	scaleInterval = 5 * time.Second
	// maxStatsAge is the age up to which an agent's measurement counts, unless its next report is due later.
	maxStatsAge = time.Minute
	// maxEstimates bounds the estimates that are remembered for one service.
	maxEstimates = 10_000
)

// never is the wait for what time alone does not bring.
const never = time.Duration(math.MaxInt64)

// Scaling decides the counts of services with scaling. Its memory is soft state: a new leader begins with nothing, so
// it lowers a count only after a whole window has passed. Only the loop calls its methods. Answers come from other
// goroutines.
type Scaling struct {
	config   Config
	due      time.Duration // on the boot-time clock (P9.1)
	services map[cluster.OwnerRef]*scaledService

	mu      sync.Mutex
	answers map[query]*answer
}

// Config is what New needs.
type Config struct {
	Tables *store.Tables
	Domain string
	Logger *slog.Logger
	// Clock reads the boot-time clock (P9).
	Clock func() time.Duration
	// Query returns the number that a Prometheus server gives for an expression. It is called on goroutines of the
	// questions; nil means no answers.
	Query func(ctx context.Context, base, query string) (float64, error)
	// Ask runs a question on a goroutine of its own. It returns false if too many are running.
	Ask func(ctx context.Context, question func(context.Context)) bool
	// LastMoment returns the newest moment of a schedule up to a time; zero for none.
	LastMoment func(schedule, zone string, until time.Time) time.Time
	// Demand returns what a task of a definition takes up.
	Demand func(*store.Snapshot, cluster.Ref) cluster.Demand
}

// scaledService is what is remembered of one service.
type scaledService struct {
	estimates []scaler.Estimate
}

// query is a question to a Prometheus server.
type query struct{ url, expr string }

// answer is the last answer to a query.
type answer struct {
	value  float64
	known  bool
	at     time.Duration // time of value, on the boot-time clock
	failed bool          // the last query failed
	busy   bool
	used   bool // requested in the present round
}

// New returns a scaling that remembers nothing.
func New(c Config) *Scaling {
	return &Scaling{config: c, services: map[cluster.OwnerRef]*scaledService{}, answers: map[query]*answer{}}
}

// Decide decides the counts of all services with scaling, if it is time, and returns the wait until the next time.
func (s *Scaling) Decide(ctx context.Context, b writes.Builder, units *[]store.Unit) time.Duration {
	now := s.config.Clock()
	if now < s.due {
		return s.due - now
	}
	s.due = now + scaleInterval
	round := &round{scaling: s, Builder: b}
	hasServices := false
	for e := range b.Snap.Services("") {
		spec := e.Value
		c, _ := b.Snap.Cluster(spec.Cluster)
		if !hasScaling(spec) || c.Value.InDomain() != s.config.Domain {
			if s.services[spec.Owner()] != nil {
				delete(s.services, spec.Owner())
				round.updateCounters(spec.Owner(), units)
			}
			continue
		}
		hasServices = true
		round.scaleService(ctx, e, units)
	}
	for o := range s.services { // order-free: each by itself
		if _, ok := b.Snap.Service(o.Cluster, o.Name); !ok {
			delete(s.services, o)
		}
	}
	s.dropUnusedAnswers()
	if !hasServices { // a new service wakes the loop
		return never
	}
	return scaleInterval
}

// round is one decision about the counts of all services.
type round struct {
	writes.Builder
	scaling *Scaling
}

// updateCounters writes the request counter source of a service's tasks.
func (r *round) updateCounters(o cluster.OwnerRef, units *[]store.Unit) {
	if err := r.UpdateRequestCounters(o, units); err != nil {
		r.scaling.config.Logger.Error("a request counter source cannot be written", "service", o.String(), "error", err)
	}
}

// hasScaling reports whether Berth changes the service's count.
func hasScaling(s *cluster.Service) bool {
	return s.Scaling != nil && !s.Scaling.Suspended && s.Mode != cluster.ModeDaemon && !s.Deleted && !s.Stopped
}

// scaleService decides one service's count. The write compares the records that the decision rests on.
func (r *round) scaleService(ctx context.Context, e store.Entry[cluster.Service], units *[]store.Unit) {
	s, spec, o := r.scaling, e.Value, e.Value.Owner()
	of := s.services[o]
	if of == nil {
		of = &scaledService{}
		s.services[o] = of
	}
	r.updateCounters(o, units)
	scale, _ := r.Snap.Scale(spec.Cluster, spec.Name)
	in := scaler.Input{Spec: spec, Scale: scaleForCount(scale.Value, spec), Estimates: of.estimates, Now: r.Now}
	owner, _ := r.Snap.Cluster(spec.Cluster)
	definition, _ := r.Snap.Definition(spec.Definition)
	in.GrowthObstacle = owner.Value.LackOf(definition.Value)
	for i := range spec.Scaling.Targets {
		in.Measured = append(in.Measured, r.measure(ctx, o, &spec.Scaling.Targets[i]))
	}
	for i := range spec.Scaling.Schedules {
		in.Fired = append(in.Fired,
			s.config.LastMoment(spec.Scaling.Schedules[i].Cron, spec.Scaling.Schedules[i].Zone, r.Now))
	}
	d := scaler.Decide(in)
	of.addEstimate(d.Estimate, r.Now.Add(-scaler.Keep(spec.Scaling)))
	if d.Scale == nil {
		return
	}
	d.Scale.Recounted = spec.Recounted
	var u store.Unit
	u.Compare(r.Prefix.Service(spec.Cluster, spec.Name), e.Modified)
	u.Compare(r.Prefix.Scale(spec.Cluster, spec.Name), scale.Modified)
	if c, ok := r.Snap.Cluster(spec.Cluster); ok { // its permissions
		u.Compare(r.Prefix.Cluster(spec.Cluster), c.Modified)
	}
	if err := u.Put(r.Prefix.Scale(spec.Cluster, spec.Name), d.Scale); err != nil {
		s.config.Logger.Error("a count cannot be written", "service", o.String(), "error", err)
		return
	}
	if d.Event != nil {
		u.Event(*d.Event)
	}
	*units = append(*units, u)
}

// scaleForCount returns the record that the decision uses. If the user has set the count again since, even to the same
// number, the record must not match the present count.
func scaleForCount(scale *cluster.Scale, spec *cluster.Service) *cluster.Scale {
	if scale == nil || scale.AppliesTo(spec) {
		return scale
	}
	old := *scale
	old.From = -1
	return &old
}

// addEstimate keeps an estimate, and drops estimates from before since.
func (s *scaledService) addEstimate(w scaler.Estimate, since time.Time) {
	if !w.At.IsZero() {
		s.estimates = append(s.estimates, w)
	}
	first := 0
	for first < len(s.estimates) && (s.estimates[first].At.Before(since) || len(s.estimates)-first > maxEstimates) {
		first++
	}
	s.estimates = slices.Delete(s.estimates, 0, first)
}

// measure returns the present value of a target's metric.
func (r *round) measure(ctx context.Context, o cluster.OwnerRef, t *cluster.ScaleTarget) scaler.Measured {
	if t.Metric == cluster.ScalePrometheus {
		return r.scaling.ask(ctx, query{t.URL, t.Query}, r.Now)
	}
	m := scaler.Measured{At: r.Now}
	sum := 0.0
	for row := range r.Snap.Attempts(o) {
		if !row.Live() || row.Desired == nil || row.Desired.Stop != nil || row.Observed == nil ||
			row.Observed.State != cluster.StateRunning {
			continue
		}
		if v, ok := r.usageOf(row, t.Metric); ok {
			sum += v
			m.Tasks++
		}
	}
	if m.Known = m.Tasks > 0; m.Known {
		m.Value = sum / float64(m.Tasks)
	}
	return m
}

// usageOf returns what one attempt uses by its agent's last report: CPU and memory in percent of what its definition
// reserves, requests as they are.
func (r *round) usageOf(row *store.AttemptRow, metric cluster.ScaleMetric) (float64, bool) {
	p, ok := r.scaling.config.Tables.Pulse(row.Node)
	if !ok || p.Stats == nil || r.scaling.config.Clock()-p.At > max(maxStatsAge, 2*p.Next) {
		return 0, false
	}
	each := p.Stats.Each
	i, ok := slices.BinarySearchFunc(each, row.Desired.UUID, func(s cluster.TaskStats, id string) int {
		return strings.Compare(s.UUID, id)
	})
	if !ok {
		return 0, false
	}
	stats := &each[i]
	reserved := r.scaling.config.Demand(r.Snap, row.Desired.Definition)
	switch {
	case metric == cluster.ScaleRequests && stats.Requests >= 0:
		return stats.Requests, true
	case metric == cluster.ScaleCPU && reserved.CPU > 0:
		return 100 * float64(stats.CPU) / float64(reserved.CPU), true
	case metric == cluster.ScaleMemory && reserved.Memory > 0:
		return 100 * float64(stats.Memory) / float64(reserved.Memory), true
	}
	return 0, false
}

// ask returns the last answer of a Prometheus server, and sends the query again for the next round.
func (s *Scaling) ask(ctx context.Context, q query, now time.Time) scaler.Measured {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.answers[q]
	if a == nil {
		a = &answer{}
		s.answers[q] = a
	}
	a.used = true
	if !a.busy && s.config.Query != nil {
		a.busy = s.config.Ask(ctx, func(ctx context.Context) {
			value, err := s.config.Query(ctx, q.url, q.expr)
			s.mu.Lock()
			defer s.mu.Unlock()
			if err != nil && !a.failed {
				s.config.Logger.Warn("a query for scaling has no answer", "query", q.expr, "error", err)
			}
			if a.busy, a.failed = false, err != nil; err == nil {
				a.value, a.known, a.at = value, true, s.config.Clock()
			}
		})
	}
	return scaler.Measured{Value: a.value, Known: a.known, At: now.Add(a.at - s.config.Clock())}
}

// dropUnusedAnswers drops the answers that were not requested in this round.
func (s *Scaling) dropUnusedAnswers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for q, a := range s.answers { // order-free: each by itself
		if !a.used && !a.busy {
			delete(s.answers, q)
		}
		a.used = false
	}
}
