package access

import (
	"regexp"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// The scheduler and the control plane name the tasks and services of other clusters in sentences: those that wait
// before a task, keep room or preempt it. These methods remove the names from each kind of view, for a caller with a
// limit. They change nothing that a view shares with the tables or the leader.

var (
	taskName = regexp.MustCompile(`[\w-]+(\.[\w-]+){3,4}`)
	// ownerNames are one or several services, jobs, crons or endpoints, as "the service blue/web" or "services blue/a,
	// red/b".
	ownerNames = regexp.MustCompile(`\b((the )?(service|job|cron|endpoint)s? )` +
		`([\w-]+/[\w-]+(?:(?:, | and )[\w-]+/[\w-]+)*)`)
	ownerName   = regexp.MustCompile(`([\w-]+)/[\w-]+`)
	clusterName = regexp.MustCompile(`\bcluster ([\w-]+)`)
)

// Hide replaces the names of tasks, services, jobs, crons and endpoints of other clusters in a sentence, and the names
// of these clusters.
func (c *Caller) Hide(text string) string {
	if !c.IsLimited() {
		return text
	}
	hidden := map[string]bool{} // the clusters of the replaced names
	text = taskName.ReplaceAllStringFunc(text, func(word string) string {
		if parts, ok := cluster.TaskID(word).Parts(); ok && !c.Sees(parts.Cluster) {
			hidden[parts.Cluster] = true
			return "a task"
		}
		return word
	})
	text = ownerNames.ReplaceAllStringFunc(text, func(words string) string {
		m := ownerNames.FindStringSubmatch(words)
		seen, all := 0, ownerName.FindAllStringSubmatch(m[4], -1)
		for _, name := range all {
			if c.Sees(name[1]) {
				seen++
			} else {
				hidden[name[1]] = true
			}
		}
		switch {
		case seen == 0 && len(all) == 1:
			return "a " + m[3] + " of another cluster"
		case seen == 0:
			return m[3] + "s of other clusters"
		}
		return m[1] + ownerName.ReplaceAllStringFunc(m[4], func(name string) string {
			if !c.Sees(ownerName.FindStringSubmatch(name)[1]) {
				return "one of another cluster"
			}
			return name
		})
	})
	if len(hidden) == 0 {
		return text
	}
	return clusterName.ReplaceAllStringFunc(text, func(words string) string {
		if hidden[clusterName.FindStringSubmatch(words)[1]] {
			return "another cluster"
		}
		return words
	})
}

// hideIn hides names in several sentences of a view.
func (c *Caller) hideIn(sentences ...*string) {
	for _, s := range sentences {
		*s = c.Hide(*s)
	}
}

// hiddenIn returns a copy of sentences with hidden names.
func (c *Caller) hiddenIn(sentences []string) []string {
	shown := slices.Clone(sentences)
	for i := range shown {
		shown[i] = c.Hide(shown[i])
	}
	return shown
}

// seesTask reports whether the caller sees the cluster of a task.
func (c *Caller) seesTask(id cluster.TaskID) bool {
	parts, _ := id.Parts()
	return c.Sees(parts.Cluster)
}

// ShowTask removes the names of other clusters from the view of a task. Its output stays as it is.
func (c *Caller) ShowTask(v *api.TaskView) {
	c.hideIn(&v.Message, &v.Pressed, &v.Misplaced)
}

// ShowService removes the names of other clusters from the view of a service.
func (c *Caller) ShowService(v *api.ServiceView) {
	if !c.IsLimited() {
		return
	}
	st := &v.Status
	c.hideIn(&st.Message, &st.Unmet, &st.RolloutMessage, &st.MemoryTrouble)
	st.Crashing = slices.Clone(st.Crashing)
	for i := range st.Crashing {
		c.hideIn(&st.Crashing[i].Message)
	}
}

// ShowJob removes the names of other clusters from the view of a job.
func (c *Caller) ShowJob(v *api.JobView) {
	if !c.IsLimited() {
		return
	}
	c.hideIn(&v.Status.Message, &v.Status.Unmet)
	v.Status.Steps = slices.Clone(v.Status.Steps)
	for i := range v.Status.Steps {
		c.hideIn(&v.Status.Steps[i].Message)
	}
}

// ShowCron removes the names of other clusters from the view of a cron.
func (c *Caller) ShowCron(v *api.CronView) { c.hideIn(&v.Status.Message) }

// ShowEndpoint removes the names of other clusters from the view of an endpoint.
func (c *Caller) ShowEndpoint(v *api.EndpointView) { c.hideIn(&v.Status.Message) }

// ShowRollout removes the names of other clusters from the view of a rollout.
func (c *Caller) ShowRollout(v *api.RolloutView) {
	c.hideIn(&v.Message)
	v.Waits = c.shownReasons(v.Waits)
}

// ShowHistory removes the names of other clusters from the versions of a service, and the hidden values from their
// changes.
func (c *Caller) ShowHistory(h *api.RolloutHistory) {
	for i := range h.Versions {
		v := &h.Versions[i]
		c.hideIn(&v.Message, &v.Note)
		v.Fields = c.ShowFields(v.Fields)
	}
}

// ShowScale removes the names of other clusters from the scaling of a service.
func (c *Caller) ShowScale(v *api.ScaleView) {
	if !c.IsLimited() {
		return
	}
	c.hideIn(&v.Message)
	v.Targets = slices.Clone(v.Targets)
	for i := range v.Targets {
		c.hideIn(&v.Targets[i].Message)
	}
}

// ShowTrouble removes the names of other clusters from a trouble.
func (c *Caller) ShowTrouble(v *api.Trouble) { c.hideIn(&v.Cause) }

// ShowEvent removes the names of other clusters from an event of a cluster that the caller sees.
func (c *Caller) ShowEvent(v *api.EventView) { c.hideIn(&v.Message) }

// ShowQueueEntry removes the names of other clusters from an entry of the queue, and the nodes of its forecasts.
func (c *Caller) ShowQueueEntry(v *api.QueueEntry) {
	c.hideIn(&v.Message)
	if v.Promise != nil && !c.seesTask(v.Promise.After) {
		shown := *v.Promise // the leader's own value must not change
		shown.After = ""
		v.Promise = &shown
	}
	c.ShowExpected(v.Expected)
	c.ShowExpected(v.ExpectedLast)
}

// shownReasons returns the reasons of an explanation without the names of other clusters and without the nodes of
// forecasts.
func (c *Caller) shownReasons(reasons []api.Because) []api.Because {
	if !c.IsLimited() {
		return reasons
	}
	shown := slices.Clone(reasons)
	for i := range shown {
		c.hideIn(&shown[i].Message)
		c.ShowExpected(shown[i].Expected)
	}
	return shown
}

// ShowExplanation removes the tasks of other clusters from an explanation.
func (c *Caller) ShowExplanation(x *api.Explanation) {
	if !c.IsLimited() {
		return
	}
	c.hideIn(&x.Summary)
	x.Because = c.shownReasons(x.Because)
	for i := range x.Suggestions {
		sg := &x.Suggestions[i]
		c.hideIn(&sg.Text)
		for j := range sg.Changes {
			ch := &sg.Changes[j]
			c.hideIn(&ch.Text)
			if slices.ContainsFunc(ch.Tasks, func(id cluster.TaskID) bool { return !c.seesTask(id) }) {
				ch.Tasks, ch.Attempts = nil, nil
			}
		}
	}
	c.showPlace(x.Place)
}

// showPlace removes the tasks of other clusters from the reasons for a place, which may be nil.
func (c *Caller) showPlace(v *api.PlaceView) {
	if v == nil {
		return
	}
	c.hideIn(&v.Here)
	v.Refusals = c.hiddenIn(v.Refusals)
	v.DecisionTrace.Refusals = slices.Clone(v.DecisionTrace.Refusals)
	for i := range v.DecisionTrace.Refusals {
		c.hideIn(&v.DecisionTrace.Refusals[i].Detail)
	}
	v.Others = slices.Clone(v.Others)
	for i := range v.Others {
		c.showOption(&v.Others[i])
	}
	if v.Asked != nil {
		c.showOption(v.Asked)
	}
}

// showOption removes the tasks of other clusters from the comparison of a node.
func (c *Caller) showOption(o *api.PlaceOption) {
	c.hideIn(&o.Text)
	o.Against = c.hiddenIn(o.Against)
}
