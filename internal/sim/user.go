package sim

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
)

const inCluster = "c"

// otherCluster is in the other domain. Its only job is otherJob, which has tasks only while that domain has nodes.
const (
	otherCluster = "d"
	otherJob     = "side"
)

// clusterOf returns the cluster of a job.
func clusterOf(job string) string {
	switch job {
	case otherJob:
		return otherCluster
	case lender, borrower: // each in a cluster of its name
		return job
	}
	return inCluster
}

// definitions returns the definitions of every fleet. Programs are commands of the fake executor.
func definitions() []*cluster.TaskDefinition {
	def := func(name string, version int, cpu cluster.MilliCPU, ports []cluster.Port,
		command ...string,
	) *cluster.TaskDefinition {
		return &cluster.TaskDefinition{
			Name: name, Version: version, Ports: ports, Grace: cluster.Duration(3 * time.Second),
			Containers: []cluster.Container{{Name: "main", Command: command, Resources: cluster.Resources{CPU: cpu}}},
		}
	}
	auto, fixed := []cluster.Port{{Name: "http"}}, []cluster.Port{{Name: "http", Port: 8080}}
	return []*cluster.TaskDefinition{
		def("web", 1, 900, auto, "run"),
		def("web", 2, 900, auto, "run", "prepare-delay", "2s"),
		def("web", 3, 700, auto, "run", "term", "0"),
		def("api", 1, 400, fixed, "run"),
		def("api", 2, 400, fixed, "run", "ignore-term"),
		def("disk", 1, 300, nil, "run"),
		def("disk", 2, 300, nil, "run", "prepare-delay", "5s"),
		def("work", 1, 500, nil, "exit", "0", "after", "2s"),
		def("work", 2, 300, nil, "exit", "0", "after", "40s", "prepare-delay", "3s"),
		def("work", 3, 300, nil, "exit", "1", "after", "1s"),
		def("slow", 1, 300, nil, "exit", "0", "after", "5s", "prepare-delay", "330s"),
		def("work", 4, 300, nil, "exit", "0", "after", "295s"),
		def("wide", 1, 2500, nil, "exit", "0", "after", "8s"),
		def("late", 1, 300, nil, "run", "prepare-delay", "20s"),
		def("big", 1, 64_000, nil, "run"),
		def("shop", 1, 100, auto, "run"),
		def("shop", 2, 100, auto, "run", "prepare-delay", "3s"),
		neverHealthy(def("shop", badVersion, 100, auto, "exit", "1", "after", "3s")),
		neverHealthy(def("web", badVersion, 900, auto, "exit", "1", "after", "2s")),
		def("logd", 1, 0, nil, "run"), // it fits everywhere
		def("logd", 2, 0, nil, "run", "term", "0"),
		def("auto", 1, 50, nil, "run"),
	}
}

// badVersion is the version of definitions that never become healthy.
const badVersion = 9

// neverHealthy makes tasks of the definition healthy only after their program has ended.
func neverHealthy(d *cluster.TaskDefinition) *cluster.TaskDefinition {
	d.MinHealthyTime = cluster.Duration(10 * time.Second)
	d.Restart = cluster.Restart{
		Limit: 1, Window: cluster.Duration(10 * time.Minute),
		Delay: cluster.Duration(time.Second), MaxDelay: cluster.Duration(time.Second),
	}
	return d
}

// user writes the wanted state, and remembers which writes were acknowledged.
type user struct {
	fleet    *fleet
	services map[string]cluster.Service
	jobs     map[string]cluster.Job
	crons    map[string]cluster.Cron
	hosts    map[string]cluster.Host
	orders   chan Event
	idle     chan struct{} // a value for each order that is done
}

func newUser(f *fleet) *user {
	return &user{
		fleet:    f,
		services: map[string]cluster.Service{},
		jobs:     map[string]cluster.Job{},
		crons:    map[string]cluster.Cron{},
		hosts:    map[string]cluster.Host{},
		orders:   make(chan Event, 1000),
		idle:     make(chan struct{}, 1000),
	}
}

// run carries out orders, one after the other.
func (u *user) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-u.orders:
			u.carryOut(ctx, e)
			u.idle <- struct{}{}
		}
	}
}

// carryOut carries out one order: a target and an argument.
func (u *user) carryOut(ctx context.Context, e Event) {
	verb, rest, _ := strings.Cut(e.Arg, " ")
	n, _ := strconv.Atoi(rest)
	switch verb {
	case "scale":
		u.changeService(ctx, e.Target, func(s *cluster.Service) { s.Count, s.Stopped, s.Deleted = n, false, false })
	case "roll":
		u.changeService(ctx, e.Target, func(s *cluster.Service) {
			s.Definition.Version, s.Deleted = n, false
			s.Generation++
			s.Rollout = cluster.RolloutWish{Paused: s.Rollout.Paused}
		})
	case "restart":
		u.changeService(ctx, e.Target, func(s *cluster.Service) {
			s.Generation++
			s.Restarted, s.Rollout = s.Generation, cluster.RolloutWish{Paused: s.Rollout.Paused}
		})
	case "undo": // to a version that may have been there before
		u.changeService(ctx, e.Target, func(s *cluster.Service) {
			s.Rollout = cluster.RolloutWish{Paused: s.Rollout.Paused, Reverted: s.Generation}
			s.Restarted = min(s.Restarted, max(1, s.Generation-1))
			s.Generation++
			s.Definition.Version = n
		})
	case "pause", "resume":
		u.changeService(ctx, e.Target, func(s *cluster.Service) { s.Rollout.Paused = verb == "pause" })
	case "promote":
		u.changeService(ctx, e.Target, func(s *cluster.Service) { s.Rollout.Promoted = s.Generation })
	case "finish": // so that nothing waits for a person
		u.changeService(ctx, e.Target, func(s *cluster.Service) {
			if s.Definition.Version == badVersion {
				s.Definition.Version = 1
			}
			s.Generation++ // also tasks that failed because of a fault
			s.Rollout = cluster.RolloutWish{Promoted: s.Generation}
		})
	case "tick", "suspend":
		u.changeCron(ctx, e.Target, verb == "suspend")
	case "stop":
		u.changeService(ctx, e.Target, func(s *cluster.Service) { s.Stopped = true })
	case "delete":
		u.changeService(ctx, e.Target, func(s *cluster.Service) { s.Deleted = true })
	case "graph":
		u.submitGraph(ctx, e.Target, n)
	case "submit", "submit2", "submit3", "submit4", "slow", "urgent":
		u.changeJob(ctx, e.Target, func(j *cluster.Job) {
			if verb == "urgent" {
				j.Priority = 900
			}
			j.Steps, j.Concurrency = j.Steps[:1], nil
			j.Steps[0].Count, j.Cancelled = n, false
			j.Steps[0].Definition = map[string]cluster.Ref{
				"submit": {Name: "work", Version: 1}, "submit2": {Name: "work", Version: 2},
				"submit3": {Name: "work", Version: 3},
				"submit4": {Name: "work", Version: 4}, "slow": {Name: "slow", Version: 1},
				"urgent": {Name: "wide", Version: 1},
			}[verb]
			j.Generation++
		})
	case "rebalance":
		u.rebalance(ctx, e.Target, n)
	case "cancel":
		u.changeJob(ctx, e.Target, func(j *cluster.Job) { j.Cancelled = true })
	case "cordon", "uncordon", "drain", "gone", "claim", "unclaim", "evict", "release", "adopt":
		u.changeHost(ctx, e.Target, func(h *cluster.Host) { setHost(h, verb) })
	default:
		u.changeDomain(ctx, e)
	}
}

// setHost sets the settings of a node by one order.
func setHost(h *cluster.Host, verb string) {
	h.Taints = nil
	if verb == "evict" {
		h.Taints = []cluster.Taint{{Key: "out", Effect: cluster.TaintEvict, Since: time.Now().UTC()}}
	}
	h.Cordon = verb == "cordon" || verb == "drain"
	h.Drain = nil
	if verb == "drain" {
		h.Drain = &cluster.Drain{Since: time.Now().UTC()}
	}
	h.Gone, h.Released = verb == "gone" || verb == "release", 0
	switch verb {
	case "release": // as the API does
		h.Generation = max(h.Generation, 1)
		h.Released = h.Generation
	case "adopt":
		h.Generation++
	}
	h.Domain = ""
	if verb == "claim" {
		h.Domain = otherDomain
	}
}

// changeService writes a service. A name whose service was removed starts again with a new generation.
func (u *user) changeService(ctx context.Context, name string, change func(*cluster.Service)) {
	write(ctx, u, prefix.Service(inCluster, name), func(old []byte) cluster.Service {
		s, known := u.services[name]
		if !known {
			s = cluster.Service{
				Cluster: inCluster, Name: name, Count: 1,
				Definition: cluster.Ref{Name: name, Version: 1}, Priority: 500,
			}
			s.Generation, s.OnDisconnect = 1, cluster.DisconnectKeep
			u.fleet.setUpdatePolicy(&s)
		}
		if now, err := store.Decode[cluster.Service](old); old != nil && err == nil && now.Rollout.Reverted != 0 {
			// Berth took a version back
			s.Generation, s.Definition, s.Rollout = now.Generation, now.Definition, now.Rollout
		}
		was := s.Deleted
		change(&s)
		if known && (old == nil || was) && !s.Deleted {
			s.Generation++
		}
		return s
	}, func(s cluster.Service) { u.services[name] = s })
}

// setUpdatePolicy sets the update policy that follows from the story's seed and the service's name.
func (f *fleet) setUpdatePolicy(s *cluster.Service) {
	portion := func(n int, percent bool) *cluster.Portion { return &cluster.Portion{N: n, Percent: percent} }
	s.Update.HealthyDeadline, s.Update.ProgressDeadline = cluster.Duration(45*time.Second),
		cluster.Duration(90*time.Second)
	switch s.Name {
	case "disk":
		s.OnDisconnect = cluster.DisconnectWait
	case "web":
		if f.story.Seed%3 == 1 {
			s.Update.MaxSurge, s.Update.MinHealthy, s.Update.Parallelism = portion(1, false), portion(60, true),
				portion(2, false)
		}
	case "shop":
		s.Update.Canaries, s.Update.AutoPromote = portion(1, false), f.story.Seed%2 == 0
		s.Update.Stagger = cluster.Duration(2 * time.Second)
		if f.story.Seed%5 == 0 {
			s.Update.Gates = []cluster.Gate{
				{Name: "errors", HTTP: "http://192.0.2.1/errors", Interval: cluster.Duration(3 * time.Second)},
			}
		}
	case "logd":
		s.Mode, s.Count = cluster.ModeDaemon, 0
	case "auto":
		window := cluster.Duration(15 * time.Second)
		s.Scaling = &cluster.Scaling{
			Min: 1, Max: 5, Up: cluster.ScalePace{Window: &window}, Down: cluster.ScalePace{Window: &window},
			Targets: []cluster.ScaleTarget{
				{Metric: cluster.ScalePrometheus, Target: 10, URL: "http://192.0.2.1", Query: "load"},
			},
		}
	}
}

func (u *user) changeCron(ctx context.Context, name string, suspended bool) {
	write(ctx, u, prefix.Cron(inCluster, name), func([]byte) cluster.Cron {
		c, known := u.crons[name]
		if !known {
			c = cluster.Cron{
				Cluster: inCluster, Name: name, Schedules: []string{"* * * * *"},
				Job: cluster.CronJob{Priority: 500, Steps: []cluster.Step{
					{
						Name:       "work",
						Definition: cluster.Ref{Name: "work", Version: 1 + int(u.fleet.story.Seed%3)},
						Count:      1,
						Retries:    1,
					},
				}},
			}
			c.Concurrency = []cluster.CronConcurrency{
				cluster.CronForbid, cluster.CronAllow,
				cluster.CronReplace,
			}[u.fleet.story.Seed%3]
			c.Missed = []cluster.CronMissed{cluster.CronOnce, cluster.CronAll, cluster.CronSkip}[u.fleet.story.Seed/3%3]
			c.Generation, c.Created = 1, time.Now().UTC()
			c.Updated = c.Created
			c.SetDefaults()
		}
		c.Suspended = suspended
		return c
	}, func(c cluster.Cron) { u.crons[name] = c })
}

// submitGraph submits a job of three steps: the second needs the first, and the third runs however the second ends. Two
// tasks of the first run at a time, and one task of the other two, of all such jobs. The job needs the service web, and
// one such job runs at a time.
func (u *user) submitGraph(ctx context.Context, name string, count int) {
	u.changeJob(ctx, name, func(j *cluster.Job) {
		work, gather := j.Steps[0], j.Steps[0]
		work.Count, gather.Count, j.Cancelled = count, 2, false
		work.Parallelism = 2
		work.Definition = cluster.Ref{Name: "work", Version: 1}
		gather.Definition = cluster.Ref{Name: "work", Version: 2}
		gather.Concurrency = &cluster.Concurrency{Group: "gather", Limit: 1}
		gather.Name, gather.Needs, gather.Requires = "gather", []string{"work"}, cluster.RequireCompleted
		tidy := gather
		tidy.Name, tidy.Needs, tidy.Requires = "tidy", []string{"gather"}, cluster.RequireResolved
		j.Steps = []cluster.Step{work, gather, tidy}
		j.Needs = []string{"service/web"}
		j.Concurrency = &cluster.Concurrency{Group: "graph", Limit: 1}
		j.Generation++
	})
}

func (u *user) changeJob(ctx context.Context, name string, change func(*cluster.Job)) {
	write(ctx, u, prefix.Job(clusterOf(name), name), func([]byte) cluster.Job {
		j, known := u.jobs[name]
		if !known {
			j = cluster.Job{Cluster: clusterOf(name), Name: name, Priority: 500, Steps: []cluster.Step{{
				Name: "work", Definition: cluster.Ref{Name: "work", Version: 1}, Count: 1,
			}}}
			if name == "batch" {
				j.Steps[0].Retries, j.Steps[0].OnDisconnect = 3, cluster.DisconnectKeep
			} else {
				j.Steps[0].OnDisconnect = cluster.DisconnectWait
			}
		}
		j.Steps = slices.Clone(j.Steps)
		change(&j)
		j.Generation = max(j.Generation, 1)
		return j
	}, func(j cluster.Job) { u.jobs[name] = j })
}

func (u *user) changeHost(ctx context.Context, name string, change func(*cluster.Host)) {
	write(ctx, u, prefix.Host(name), func([]byte) cluster.Host {
		h, known := u.hosts[name]
		if !known {
			h = cluster.Host{Name: name}
		}
		change(&h)
		return h
	}, func(h cluster.Host) { u.hosts[name] = h })
}

// write repeats a compare-and-set by any server until it is acknowledged, as a client does. Only an acknowledged draft
// counts as wanted.
func write[T any](ctx context.Context, u *user, key string, draft func(old []byte) T, done func(T)) {
	for ctx.Err() == nil {
		d := u.fleet.random.roll("user")
		if s := u.fleet.hosts[d.below(len(u.fleet.hosts))].liveServer(); s != nil {
			limited, cancel := context.WithTimeout(ctx, 10*time.Second)
			record, ok := try(limited, s, key, draft)
			cancel()
			if ok {
				done(record)
				return
			}
		}
		_ = pause.For(ctx, 300*time.Millisecond)
	}
}

// try writes once, by one server.
func try[T any](ctx context.Context, s *server, key string, draft func(old []byte) T) (record T, ok bool) {
	r, err := readSpec(ctx, s, key)
	if err != nil {
		return record, false
	}
	record = draft(r.Value)
	value, err := store.Encode(record)
	if err != nil {
		panic(err) // a fault of the simulator
	}
	return record, commitSpec(ctx, s, key, r.Modified, value)
}

// readSpec reads a user's record. A record that does not exist has no value.
func readSpec(ctx context.Context, s *server, key string) (store.Record, error) {
	r, err := s.engine.Read(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return store.Record{}, nil
	}
	return r, err
}

// commitSpec writes a user's record if it is unchanged since it was read, and reports whether that was acknowledged.
func commitSpec(ctx context.Context, s *server, key string, modified uint64, value []byte) bool {
	s.fleet.checker.specs.noteWanted(key, value)
	result, err := s.engine.Commit(ctx, []store.Group{{
		Compares: []store.Compare{{Key: key, Modified: modified}}, Ops: []store.Op{{Key: key, Value: value}},
	}})
	if err != nil || !result.Applied[0] {
		return false
	}
	s.fleet.checker.specs.noteAcknowledged(key, value)
	return true
}

// runRecovery decides, for each domain, whether to adopt or stop its tasks after the store went back (P1.7).
func (u *user) runRecovery(ctx context.Context) {
	for pause.For(ctx, 7*time.Second) == nil {
		for _, domain := range []string{cluster.DefaultDomain, otherDomain} {
			d := u.fleet.random.roll("operator")
			s := u.fleet.hosts[d.below(len(u.fleet.hosts))].liveServer()
			if s == nil {
				continue
			}
			e, ok := s.tables.Snapshot().Recovery(domain)
			if !ok || e.Value.State != cluster.RecoveryNeeded {
				continue
			}
			limited, cancel := context.WithTimeout(ctx, 5*time.Second)
			decided := []cluster.RecoveryState{cluster.RecoveryAdopt, cluster.RecoveryStop}[d.below(2)]
			u.decideRecovery(limited, s, e, decided)
			cancel()
		}
	}
}

// decideRecovery writes the decision as the API server does: the incarnation rises above what agents have seen.
func (u *user) decideRecovery(
	ctx context.Context,
	s *server,
	e store.Entry[cluster.Recovery],
	decided cluster.RecoveryState,
) {
	r, err := s.engine.Read(ctx, prefix.Leader(strings.TrimPrefix(e.Key, prefix.Recovery(""))))
	if err != nil {
		return
	}
	leader, err := store.Decode[cluster.Leader](r.Value)
	if err != nil {
		return
	}
	next, now := *e.Value, time.Now().UTC()
	next.State, next.Decided, next.By = decided, now, "operator"
	leader.Incarnation = max(uint64(now.UnixMilli()), next.Shown.Incarnation+1, leader.Incarnation+1)
	leader.Epoch++
	leader.Holder, leader.Member, leader.Since = "", "", now
	var unit store.Unit
	unit.Compare(e.Key, e.Modified)
	unit.Compare(r.Key, r.Modified)
	if unit.Put(e.Key, &next) == nil && unit.Put(r.Key, leader) == nil {
		_, _ = s.engine.Commit(ctx, []store.Group{unit.Group}) // refused or lost, it is decided again
	}
}
