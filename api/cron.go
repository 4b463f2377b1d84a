package api

import (
	"time"
)

// CronView is a cron with its status.
type CronView struct {
	Cron
	Revision uint64     `json:"revision"`
	Status   CronStatus `json:"status"`
}

// CronStatus is the progress of a cron.
type CronStatus struct {
	State CronState `json:"state"`
	// Next are the next moments, at most five. It is empty for a suspended cron and for a cron without further moments.
	Next []time.Time `json:"next,omitempty"`
	// Last is the newest handled moment, and Job the newest job, made at Made.
	Last time.Time `json:"last,omitzero"`
	Job  string    `json:"job,omitempty"`
	Made time.Time `json:"made,omitzero"`
	// Running are the names of the cron's unfinished jobs. Succeeded and Failed count the finished jobs that are kept.
	Running   []string `json:"running,omitempty"`
	Succeeded int      `json:"succeeded,omitempty"`
	Failed    int      `json:"failed,omitempty"`
	// Message says why the last moment has no job.
	Message string `json:"message,omitempty"`
}

// CronState is the state of a cron.
type CronState string

// States of a cron.
const (
	CronWaiting   CronState = "waiting" // for its next moment, if it has one
	CronRunning   CronState = "running" // a job of it has not finished
	CronSuspended CronState = "suspended"
)

// Values returns every CronState, in the order of the constants.
func (CronState) Values() []CronState {
	return []CronState{CronWaiting, CronRunning, CronSuspended}
}
