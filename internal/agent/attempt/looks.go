package attempt

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// hearAgain is how soon an attempt looks again whether the silence of a check was the task's, see lifecycle.Doubted.
const hearAgain = time.Second

// Look is what was seen of one check of a round.
type Look struct {
	// Round and Check say of which; what was seen of an earlier round is ignored.
	Round, Check int
	State        lifecycle.CheckState
	// Complaint is what it answered, empty where it was well.
	Complaint string
}

// Looked says what a check has shown. What comes while the round does not run counts for nothing.
func (r *Record) Looked(def *cluster.TaskDefinition, look Look) {
	if !r.IsUp() || def == nil || look.Round != r.Round || look.Check < 0 || look.Check >= len(def.Checks) {
		return
	}
	r.makeLooks(def)
	r.Looks[look.Check] = lifecycle.Looked(r.Looks[look.Check], look.State, look.Complaint)
}

// Said says what was said to a check of type ttl. Changed reports whether it has to be durable before it is
// acknowledged: a word that says the same again only lets the TTL begin anew, which another life of the agent does as
// well. The error tells why the word counts for nothing.
func (r *Record) Said(def *cluster.TaskDefinition, check string, word cluster.Word, message string,
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
	if def.Checks[i].Means() == cluster.MeaningStartup && r.Through != 0 {
		return false, nil // it is over
	}
	r.Looks[i] = lifecycle.Heard(word, message, now.Boot)
	return before.Health != r.Looks[i].Health || before.Complaint != r.Looks[i].Complaint, nil
}

// makeLooks gives the record looks of its own: others hold its copies.
func (r *Record) makeLooks(def *cluster.TaskDefinition) {
	looks := make([]lifecycle.Look, len(def.Checks))
	copy(looks, r.Looks)
	r.Looks = looks
}

// Watched returns the checks that the agent has to look at now, by their indices: none before the round is up, those of
// the meaning startup until all have succeeded, then the others. Nobody looks for those of type ttl.
func (r *Record) Watched(def *cluster.TaskDefinition) (checks []int) {
	if !r.IsUp() || def == nil {
		return nil
	}
	for i := range def.Checks {
		c := &def.Checks[i]
		if c.Type != cluster.CheckTTL && (c.Means() == cluster.MeaningStartup) == (r.Through == 0) {
			checks = append(checks, i)
		}
	}
	return checks
}

// Doubts reports whether a check heard nothing for its TTL and only a server's answer can tell whether something could
// have been heard.
func (r *Record) Doubts(def *cluster.TaskDefinition, now Now) bool {
	if !r.IsUp() || def == nil {
		return false
	}
	round := r.round(def, now)
	for i := range def.Checks {
		if e, _ := lifecycle.Expires(&round, i); e == lifecycle.Doubted {
			return true
		}
	}
	return false
}

func (r *Record) round(def *cluster.TaskDefinition, now Now) lifecycle.Round {
	return lifecycle.Round{
		Checks: def.Checks, Looks: r.Looks, Up: r.Up, Through: r.Through, Hearing: r.Hearing,
		Now: now.Boot,
	}
}

// judge takes in what the checks of the round say, and returns when to look again, 0 for when something happens.
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
			r.Looks[i] = lifecycle.Silent(&def.Checks[i], r.Looks[i])
			round.Looks = r.Looks
		case lifecycle.Doubted:
			next = now.Boot + hearAgain
		case lifecycle.Stands:
		}
		at = sooner(at, next)
	}
	out = lifecycle.Judge(&round)
	if out.Started && r.Through == 0 {
		r.Through = now.Boot
		r.Note = ""
		return r.judge(def, now) // the others count from here on
	}
	if len(def.Checks) > 0 && r.told(out) {
		r.Note = out.Note
	}
	if out.Health != cluster.HealthUnknown {
		r.Health = out.Health
	}
	return out, at
}

// told reports whether the note of the checks replaces the record's: until the first of them has shown something the
// record keeps what it was left with, as it keeps its health.
func (r *Record) told(out lifecycle.Checked) bool {
	return out.Note != "" || out.Health != cluster.HealthUnknown ||
		slices.ContainsFunc(r.Looks, func(l lifecycle.Look) bool { return l.Health != "" })
}

// essential returns the container whose log tells most where a check ends the round, or -1: the first essential one.
func essential(def *cluster.TaskDefinition) int {
	return slices.IndexFunc(def.Containers, func(c cluster.Container) bool { return !c.Init && !c.Optional })
}
