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

// Checks are the checks of an attempt's definition with the results in its record. The zero definition has none.
type Checks struct {
	record *Record
	def    *cluster.TaskDefinition
}

// Checks returns the checks of a definition, nil if it is not known. Changes go into the record.
func (r *Record) Checks(def *cluster.TaskDefinition) Checks { return Checks{r, def} }

// Report records a result of a check. Results that arrive while the round does not run are ignored.
func (c Checks) Report(report CheckReport) {
	if !c.record.IsUp() || c.def == nil || report.Round != c.record.Round || report.Check < 0 ||
		report.Check >= len(c.def.Checks) {
		return
	}
	c.copyResults()
	result := &c.record.CheckResults[report.Check]
	*result = lifecycle.Probed(*result, report.State, report.Complaint)
}

// Update applies an update to a check of type ttl. Changed reports whether the update must be durable before it is
// acknowledged. A repeated update only restarts the TTL; a restart of the agent restarts it as well. The error says why
// the update does not count.
func (c Checks) Update(check string, word cluster.TTLUpdate, message string, now Now) (changed bool, err error) {
	if c.def == nil {
		return false, errors.New("the node does not have the task's definition yet: retry")
	}
	i := slices.IndexFunc(c.def.Checks, func(other cluster.Check) bool {
		return other.Name == check && other.Type == cluster.CheckTTL
	})
	if i < 0 {
		return false, fmt.Errorf("the task has no check %q of type ttl", check)
	}
	if c.record.Phase != PhaseRunning || c.record.Begun == 0 {
		return false, errors.New("the task is not running: retry once it runs")
	}
	c.copyResults()
	before := c.record.CheckResults[i]
	if c.def.Checks[i].EffectiveMeaning() == cluster.MeaningStartup && c.record.Through != 0 {
		return false, nil // the startup checks are over
	}
	c.record.CheckResults[i] = lifecycle.TTLUpdated(word, message, now.Boot)
	after := c.record.CheckResults[i]
	return before.Health != after.Health || before.Complaint != after.Complaint, nil
}

// Watched returns the indices of the checks that the agent has to run now. Before the round is up there are none; then
// the startup checks until all have succeeded; then the others. Checks of type ttl are never run.
func (c Checks) Watched() (checks []int) {
	if !c.record.IsUp() || c.def == nil {
		return nil
	}
	starting := c.record.Through == 0
	for i := range c.def.Checks {
		check := &c.def.Checks[i]
		if check.Type != cluster.CheckTTL && (check.EffectiveMeaning() == cluster.MeaningStartup) == starting {
			checks = append(checks, i)
		}
	}
	return checks
}

// HasDoubted reports whether a ttl check is silent for its TTL, and only a server's answer can decide whether updates
// could have arrived.
func (c Checks) HasDoubted(now Now) bool {
	if !c.record.IsUp() || c.def == nil {
		return false
	}
	t := transition{c.record, c.def, now}
	round := t.round()
	for i := range c.def.Checks {
		if e, _ := lifecycle.Expires(&round, i); e == lifecycle.Unconfirmed {
			return true
		}
	}
	return false
}

// copyResults copies the results in the record, because others hold copies of it.
func (c Checks) copyResults() {
	results := make([]lifecycle.CheckRecord, len(c.def.Checks))
	copy(results, c.record.CheckResults)
	c.record.CheckResults = results
}

// judge evaluates the checks of the round, and returns when to evaluate them again, 0 for the next event.
func (t *transition) judge() (out lifecycle.Checked, at time.Duration) {
	if t.Up == 0 {
		return out, 0
	}
	if t.Through == 0 && !t.def.HasCheck(cluster.MeaningStartup) {
		t.Through = t.Up
	}
	round := t.round()
	for i := range t.def.Checks {
		e, next := lifecycle.Expires(&round, i)
		switch e {
		case lifecycle.Expired:
			t.Checks(t.def).copyResults()
			t.CheckResults[i] = lifecycle.TTLExpired(&t.def.Checks[i], t.CheckResults[i])
			round.Records = t.CheckResults
		case lifecycle.Unconfirmed:
			next = t.now.Boot + doubtRecheckInterval
		case lifecycle.Valid:
		}
		at = sooner(at, next)
	}
	out = lifecycle.Judge(&round)
	if out.Started && t.Through == 0 {
		t.Through = t.now.Boot
		t.Note = ""
		return t.judge() // the other checks count from now on
	}
	if len(t.def.Checks) > 0 && t.replacesNote(out) {
		t.Note = out.Note
	}
	if out.Health != cluster.HealthUnknown {
		t.Health = out.Health
	}
	return out, at
}

func (t *transition) round() lifecycle.Round {
	return lifecycle.Round{
		Checks: t.def.Checks, Records: t.CheckResults, Up: t.Up, Through: t.Through, TTLWindow: t.TTLWindow,
		Now: t.now.Boot,
	}
}

// replacesNote reports whether the note of the checks replaces the record's. The record keeps its note and its health
// until the first check of the round has a result.
func (t *transition) replacesNote(out lifecycle.Checked) bool {
	return out.Note != "" || out.Health != cluster.HealthUnknown ||
		slices.ContainsFunc(t.CheckResults, func(l lifecycle.CheckRecord) bool { return l.Health != "" })
}

// firstEssential returns the first essential container, or -1. Its log is shown when a check ends the round.
func firstEssential(def *cluster.TaskDefinition) int {
	return slices.IndexFunc(def.Containers, func(c cluster.Container) bool { return !c.Init && !c.Optional })
}
