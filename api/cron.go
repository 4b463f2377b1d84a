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

// CronStatus is how far a cron has come.
type CronStatus struct {
	// State is "waiting" for the next moment, "running", "suspended" or "deleting".
	State string `json:"state"`
	// Next are the next moments, at most five; empty for a cron that is suspended or has none any more.
	Next []time.Time `json:"next,omitempty"`
	// Last is the newest moment that was dealt with, and Job the newest job that was made, at Made.
	Last time.Time `json:"last,omitzero"`
	Job  string    `json:"job,omitempty"`
	Made time.Time `json:"made,omitzero"`
	// Running are the jobs of the cron that have not ended, by name; Succeeded and Failed how many of those that are
	// kept did.
	Running   []string `json:"running,omitempty"`
	Succeeded int      `json:"succeeded,omitempty"`
	Failed    int      `json:"failed,omitempty"`
	// Message says why the last moment has no job.
	Message string `json:"message,omitempty"`
}
