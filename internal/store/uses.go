package store

import "github.com/berthd/berth/internal/cluster"

// UsedDefinitions returns the versions of task definitions that something refers to: services, jobs and crons, the versions that rollouts
// can go back to, and attempts, also those that have ended. A reference to the newest version counts as one to the version that it is.
func (s *Snapshot) UsedDefinitions() map[cluster.Ref]bool {
	used := map[cluster.Ref]bool{}
	use := func(ref cluster.Ref) {
		if ref.Version == 0 {
			ref, _, _ = s.NewestDefinition(ref.Name)
		}
		used[ref] = true
	}
	steps := func(list []cluster.Step) {
		for i := range list {
			use(list[i].Definition)
		}
	}
	for e := range s.Services("") {
		use(e.Value.Definition)
	}
	for e := range s.Jobs("") {
		steps(e.Value.Steps)
	}
	for e := range s.Crons("") {
		if !e.Value.Deleted { // it makes no job any more
			steps(e.Value.Job.Steps)
		}
	}
	for e := range s.Rollouts() {
		use(e.Value.Definition)
		if e.Value.Healthy != nil {
			use(e.Value.Healthy.Definition)
		}
		for i := range e.Value.History {
			use(e.Value.History[i].Definition)
		}
	}
	for row := range s.AllAttempts() {
		if row.Desired != nil {
			use(row.Desired.Definition)
		}
		if row.Observed != nil {
			use(row.Observed.Definition)
		}
		if row.Outcome != nil {
			use(row.Outcome.Definition)
		}
	}
	return used
}

// NewestWithout returns the number of the newest version of a definition but one, 0 if there is no other.
func (s *Snapshot) NewestWithout(ref cluster.Ref) (version int) {
	for e := range s.Definitions(ref.Name) {
		if e.Value.Version != ref.Version {
			version = max(version, e.Value.Version)
		}
	}
	return version
}
