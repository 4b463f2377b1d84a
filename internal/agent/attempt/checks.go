package attempt

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// doubtRecheckInterval is how soon an attempt checks again whether a ttl check was silent or unreachable, see
// lifecycle.Unconfirmed.
const doubtRecheckInterval = time.Second

// CheckReport is one result of a check of a round.
type CheckReport struct {
	// Round and Check identify the check; reports of earlier rounds are ignored.
	Round, Check int
	State        lifecycle.CheckState
	// Complaint is what it answered, empty where it was well.
	Complaint string
}

// CheckReported records a result of a check. Results that arrive while the round does not run are ignored.
func (r *Record) CheckReported(def *cluster.TaskDefinition, look CheckReport) {
	if !r.IsUp() || def == nil || look.Round != r.Round || look.Check < 0 || look.Check >= len(def.Checks) {
		return
	}
	r.makeLooks(def)
	r.Looks[look.Check] = lifecycle.Probed(r.Looks[look.Check], look.State, look.Complaint)
}

// TTLUpdated applies an update to a check of type ttl. Changed reports whether the update must be durable before it is
// acknowledged. A repeated update only restarts the TTL; a restart of the agent restarts it as well. The error says why
// the update does not count.
func (r *Record) TTLUpdated(def *cluster.TaskDefinition, check string, word cluster.TTLUpdate, message string,
	now Now,
) (changed bool, err error) {
	if def == nil {
		return false, errors.New("the task's definition is not known here yet: say it again")
	}
	i := slices.IndexFunc(def.Checks, func(c cluster.Check) bool {
		return c.Name == check && c.Type == cluster.CheckTTL
	})
	if i < 0 {
		return false, fmt.Errorf("the task has no check %q of type ttl", check)
	}
	if r.Phase != PhaseRunning || r.Begun == 0 {
		return false, errors.New("the task does not run now: say it again once it does")
	}
	r.makeLooks(def)
	before := r.Looks[i]
	if def.Checks[i].EffectiveMeaning() == cluster.MeaningStartup && r.Through != 0 {
		return false, nil // the startup checks are over
	}
	r.Looks[i] = lifecycle.TTLUpdated(word, message, now.Boot)
	return before.Health != r.Looks[i].Health || before.Complaint != r.Looks[i].Complaint, nil
}

// makeLooks copies the looks of the record, because others hold copies of it.
func (r *Record) makeLooks(def *cluster.TaskDefinition) {
	looks := make([]lifecycle.CheckRecord, len(def.Checks))
	copy(looks, r.Looks)
	r.Looks = looks
}

// Watched returns the indices of the checks that the agent has to run now. Before the round is up there are none; then
// the startup checks until all have succeeded; then the others. Checks of type ttl are never run.
func (r *Record) Watched(def *cluster.TaskDefinition) (checks []int) {
	if !r.IsUp() || def == nil {
		return nil
	}
	for i := range def.Checks {
		c := &def.Checks[i]
		if c.Type != cluster.CheckTTL && (c.EffectiveMeaning() == cluster.MeaningStartup) == (r.Through == 0) {
			checks = append(checks, i)
		}
	}
	return checks
}

// HasDoubtedCheck reports whether a ttl check is silent for its TTL, and only a server's answer can tell whether
// updates could have arrived.
func (r *Record) HasDoubtedCheck(def *cluster.TaskDefinition, now Now) bool {
	if !r.IsUp() || def == nil {
		return false
	}
	round := r.round(def, now)
	for i := range def.Checks {
		if e, _ := lifecycle.Expires(&round, i); e == lifecycle.Unconfirmed {
			return true
		}
	}
	return false
}

func (r *Record) round(def *cluster.TaskDefinition, now Now) lifecycle.Round {
	return lifecycle.Round{
		Checks: def.Checks, Records: r.Looks, Up: r.Up, Through: r.Through, TTLWindow: r.TTLWindow,
		Now: now.Boot,
	}
}

// judge evaluates the checks of the round, and returns when to evaluate them again, 0 for the next event.
func (r *Record) judge(def *cluster.TaskDefinition, now Now) (out lifecycle.Checked, at time.Duration) {
	if r.Up == 0 {
		return out, 0
	}
	if r.Through == 0 && !def.HasCheck(cluster.MeaningStartup) {
		r.Through = r.Up
	}
	round := r.round(def, now)
	for i := range def.Checks {
		e, next := lifecycle.Expires(&round, i)
		switch e {
		case lifecycle.Expired:
			r.makeLooks(def)
			r.Looks[i] = lifecycle.TTLExpired(&def.Checks[i], r.Looks[i])
			round.Records = r.Looks
		case lifecycle.Unconfirmed:
			next = now.Boot + doubtRecheckInterval
		case lifecycle.Valid:
		}
		at = sooner(at, next)
	}
	out = lifecycle.Judge(&round)
	if out.Started && r.Through == 0 {
		r.Through = now.Boot
		r.Note = ""
		return r.judge(def, now) // the other checks count from now on
	}
	if len(def.Checks) > 0 && r.replacesNote(out) {
		r.Note = out.Note
	}
	if out.Health != cluster.HealthUnknown {
		r.Health = out.Health
	}
	return out, at
}

// replacesNote reports whether the note of the checks replaces the record's. The record keeps its note and its health
// until the first check of the round has a result.
func (r *Record) replacesNote(out lifecycle.Checked) bool {
	return out.Note != "" || out.Health != cluster.HealthUnknown ||
		slices.ContainsFunc(r.Looks, func(l lifecycle.CheckRecord) bool { return l.Health != "" })
}

// firstEssential returns the first essential container, or -1. Its log is shown when a check ends the round.
func firstEssential(def *cluster.TaskDefinition) int {
	return slices.IndexFunc(def.Containers, func(c cluster.Container) bool { return !c.Init && !c.Optional })
}
