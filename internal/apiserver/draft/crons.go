package draft

import (
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/timetable"
)

// SetCron drafts the write of a cron. It resolves references, as SetJob does. The generation counts the writes.
func (d *Draft) SetCron(c *cluster.Cron, pre Precondition) (api.Change, error) {
	change := api.Change{Kind: cluster.KindCron, Cluster: c.Cluster, Name: c.Name, Action: api.ActionCreate}
	c.Job.Steps = slices.Clone(c.Job.Steps) // references are completed
	old, ok := d.Snap.Cron(c.Cluster, c.Name)
	if err := pre.Check(old.Modified); err != nil {
		return change, err
	}
	var had []cluster.Step
	var neededBefore []string
	if ok {
		had, neededBefore = old.Value.Job.Steps, old.Value.Job.Needs
	}
	fields, inline, faults := d.resolveSteps(c.Job.Steps, had, "job.steps")
	if err := d.RequireCluster(c.Cluster); err != nil {
		found, isConflict := faultsOf(err)
		if isConflict && len(faults) == 0 {
			return change, err
		}
		faults = append(faults, found...)
	}
	faults = append(faults, d.checkStepPermissions(c.Cluster, c.Job.Steps, fields)...)
	owner := cluster.OwnerRef{Kind: cluster.KindCron, Cluster: c.Cluster, Name: c.Name}
	faults = append(faults, d.needs.check(owner, c.Job.Needs, neededBefore, "job.needs")...)
	if len(faults) > 0 {
		return change, faults
	}
	var prev *cluster.Cron
	c.Lifespan = cluster.Lifespan{Generation: 1, Created: d.Now, Updated: d.Now, Trace: d.Trace}
	if ok {
		prev = old.Value
		c.Generation, c.Created = prev.Generation+1, prev.Created
		change.Revision = old.Modified
		change.Action, change.Fields = Compare(plainCron(prev), plainCron(c))
		change.Fields = append(change.Fields, inline...)
	}
	var names []string
	if prev != nil {
		names = prev.Inline
	}
	c.Inline = inlineNames(fields, definitionsOf(c.Job.Steps), definitionsOf(had), names)
	change.Effect = d.cronEffect(prev, c)
	if change.Action == api.ActionNone {
		return change, nil
	}
	d.Put(d.Prefix.Cron(c.Cluster, c.Name), c, old.Modified)
	return change, checkSize(c, "job.steps")
}

// resolveSteps completes the references of steps. It returns the field of each step's definition, the changes of
// templates from the versions that the steps had, and the faults.
func (d *Draft) resolveSteps(steps, old []cluster.Step, path string) (fields []definitionField,
	changes []api.FieldChange, faults cluster.Faults,
) {
	had := make(map[string]cluster.Ref, len(old))
	for i := range old {
		had[old[i].Name] = old[i].Definition
	}
	for i := range steps {
		field, differ, err := d.resolveDefinition(&steps[i].Definition, &steps[i].Template, had[steps[i].Name],
			fmt.Sprintf("%s[%d].", path, i))
		if err != nil {
			faults = append(faults, cluster.FaultsOf(err)...)
		}
		if def := d.Definition(steps[i].Definition); def != nil {
			at := fmt.Sprintf("%s[%d].parameters", path, i)
			faults = append(faults, steps[i].Parameters.CheckDefinition(at, def)...)
		}
		fields, changes = append(fields, field), append(changes, differ...)
		if s := &steps[i]; s.Gang != nil && d.gangs != 0 && s.Count > d.gangs {
			faults = append(faults, cluster.Fault{Path: fmt.Sprintf("%s[%d].gang", path, i), Message: fmt.Sprintf(
				"is of %d tasks, at most %d can be placed together in the store that the servers use", s.Count,
				d.gangs)})
		}
	}
	return fields, changes, faults
}

func plainCron(c *cluster.Cron) *cluster.Cron {
	plain := *c
	plain.Lifespan = cluster.Lifespan{}
	return &plain
}

// cronEffect returns the effect of a write as a sentence; old is nil for a new cron.
func (d *Draft) cronEffect(old, c *cluster.Cron) string {
	next := NextOf(c, d.Now, 1)
	switch {
	case c.Suspended && (old == nil || !old.Suspended):
		return "makes no jobs while it is suspended"
	case c.Suspended:
		return ""
	case len(next) == 0:
		return "makes no jobs: its schedules have no moment any more"
	case old == nil, old.Suspended, !slices.Equal(old.Schedules, c.Schedules), old.Zone != c.Zone:
		return "makes the next job at " + next[0].UTC().Format(time.RFC3339)
	}
	return ""
}

// NextOf returns the next moments of a cron, in its own time zone.
func NextOf(c *cluster.Cron, after time.Time, most int) (all []time.Time) {
	table, err := timetable.ParseAll(c.Schedules, c.Zone)
	if err != nil { // the write of the cron checked it
		return nil
	}
	zone, err := time.LoadLocation(c.Zone)
	if err != nil {
		zone = time.UTC
	}
	for range most {
		after = table.Next(after)
		if after.IsZero() {
			break
		}
		all = append(all, after.In(zone))
	}
	return all
}

// unreadableCron returns the faults of the schedules and the zone of a cron.
func unreadableCron(c *cluster.Cron) (faults cluster.Faults) {
	if c.Zone != "" {
		if _, err := timetable.Parse("@daily", c.Zone); err != nil {
			return cluster.Faults{{Path: "zone", Message: err.Error()}}
		}
	}
	for i, text := range c.Schedules {
		if _, err := timetable.Parse(text, c.Zone); err != nil {
			faults = append(faults, cluster.Fault{Path: fmt.Sprintf("schedules[%d]", i), Message: err.Error()})
		}
	}
	return faults
}
