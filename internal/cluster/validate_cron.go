package cluster

import (
	"strings"
	"time"
)

// Bounds of crons.
const (
	MinCronWithin = Duration(10 * time.Second)
	MaxCronWithin = Duration(30 * 24 * time.Hour)
	MaxCronKeep   = 1000
)

// Validate returns all faults of the cron as Faults, or nil, but not those within schedules and zone: package timetable
// reads them. Omitted fields count with their defaults. References are not checked.
func (c *Cron) Validate() error {
	c = c.completed()
	k := newCheck()
	k.at("cluster").name(c.Cluster)
	k.at("name").name(c.Name)
	k.at("name").must(len(c.Name) <= MaxCronName || len(c.Name) > MaxName,
		"is %d bytes long, at most %d are allowed: its jobs have the moment in their names, too", len(c.Name),
		MaxCronName)
	k.at("labels").labels(c.Labels)
	k.at("schedules").must(len(c.Schedules) > 0, "is empty: want a schedule such as \"30 4 * * *\" or \"@daily\"")
	k.at("schedules").must(len(c.Schedules) <= MaxSchedules, "holds %d schedules, at most %d are allowed",
		len(c.Schedules), MaxSchedules)
	for i, s := range c.Schedules {
		k.index("schedules", i).must(!strings.Contains(s, ";"), "holds a \";\": make it another schedule of the list")
	}
	oneOf(k.at("concurrency"), c.Concurrency)
	oneOf(k.at("missed"), c.Missed)
	k.at("missed").must(c.Missed != CronAll || c.Concurrency != CronReplace,
		"is all, and with the concurrency replace each of the jobs would cancel the one before: want once, "+
			"or the concurrency forbid or allow")
	k.at("within").span(c.Within, MinCronWithin, MaxCronWithin)
	k.at("keep_succeeded").within(*c.KeepSucceeded, 0, MaxCronKeep)
	k.at("keep_failed").within(*c.KeepFailed, 0, MaxCronKeep)
	job := k.at("job")
	job.at("labels").labels(c.Job.Labels)
	job.ownerNeeds(c.Job.Needs, OwnerRef{KindCron, c.Cluster, c.Name})
	job.at("priority").within(int(c.Job.Priority), 1, MaxPriority)
	job.deadline(c.Job.Deadline)
	job.steps(c.Job.Steps)
	return k.err()
}
