package store

import (
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// isInTables reports whether the tables hold the record under a key, which comes without the store's prefix. A branch
// keeps a list of all other keys itself.
func isInTables(key string) bool {
	kind, rest, _ := strings.Cut(key, "/")
	switch kind {
	case "state":
		return strings.Contains(rest, "/")
	case "cluster", "service", "job", "task", "host", "node", "status", "attempt", "plan", "leader", "server", "token",
		"domain",
		"recovery", "rollout", "scale", "cron", "fired", "reservation", "secret", "secretkey", "masterkey", "event":
		return true
	}
	return false
}

// find returns the revisions and the value of the record under a key, which comes without the store's prefix. Where the
// tables do not keep the revision of creation, Created is that of the last write.
func (s *Snapshot) find(key string) (Record, any, bool) {
	kind, rest, _ := strings.Cut(key, "/")
	switch kind {
	case "cluster":
		return entry(s.clusters.Get(rest))
	case "service":
		return entry(s.services.Get(rest))
	case "job":
		return entry(s.jobs.Get(rest))
	case "task":
		return s.findDefinition(rest)
	case "host":
		return entry(s.hosts.Get(rest))
	case "node":
		return entry(s.nodes.Get(rest))
	case "status", "state", "attempt":
		return s.findAttempt(kind, rest)
	case "plan":
		seq, err := strconv.ParseUint(rest, 10, 64)
		if err != nil {
			return Record{}, nil, false
		}
		return entry(s.plans.Get(seq))
	case "leader":
		return entry(s.leaders.Get(rest))
	case "server":
		return entry(s.servers.Get(rest))
	case "token":
		return entry(s.tokens.Get(rest))
	case "domain":
		return entry(s.domains.Get(rest))
	case "recovery":
		return entry(s.recoveries.Get(rest))
	case "seal":
		return entry(s.seals.Get(rest))
	case "rollout":
		return entry(s.rollouts.Get(rest))
	case "scale":
		return entry(s.scales.Get(rest))
	case "cron":
		return entry(s.crons.Get(rest))
	case "fired":
		return entry(s.fired.Get(rest))
	case "reservation":
		return entry(s.reserved.Get(rest))
	case "secret":
		return entry(s.secrets.Get(rest))
	case "secretkey":
		return entry(s.secretKeys.Get(rest))
	case "masterkey":
		return entry(s.masterKeys.Get(rest))
	case "event":
		return entry(s.EventBatch(rest))
	}
	return Record{}, nil, false
}

func entry[T any](e Entry[T], ok bool) (Record, any, bool) {
	if !ok {
		return Record{}, nil, false
	}
	return Record{Created: e.Created, Modified: e.Modified}, e.Value, true
}

func (s *Snapshot) findDefinition(rest string) (Record, any, bool) {
	name, version, versioned := strings.Cut(rest, "/")
	if !versioned {
		return entry(s.newest.Get(name))
	}
	n, err := strconv.Atoi(version)
	if err != nil {
		return Record{}, nil, false
	}
	return entry(s.definitions.Get(definitionKey(cluster.Ref{Name: name, Version: n})))
}

// findAttempt finds one of the three records of an attempt, or the registration of a node.
func (s *Snapshot) findAttempt(kind, rest string) (Record, any, bool) {
	first, second, both := strings.Cut(rest, "/")
	switch {
	case !both && kind == "status":
		return entry(s.statuses.Get(first))
	case !both:
		return Record{}, nil, false
	case kind == "attempt":
		n, err := strconv.Atoi(second)
		if err != nil {
			return Record{}, nil, false
		}
		row, ok := s.Attempt(cluster.TaskID(first), n)
		if !ok || row.OutcomeRev == 0 {
			return Record{}, nil, false
		}
		return Record{Created: row.OutcomeRev, Modified: row.OutcomeRev}, row.Outcome, true
	}
	for row := range s.TaskAttempts(cluster.TaskID(second)) {
		switch {
		case row.Node != first:
		case kind == "state" && row.DesiredRev != 0 && row.Unreadable:
			return Record{Created: row.DesiredRev, Modified: row.DesiredRev}, nil, true
		case kind == "state" && row.DesiredRev != 0:
			return Record{Created: row.DesiredRev, Modified: row.DesiredRev}, row.Desired, true
		case kind == "status" && row.ObservedRev != 0 && (row.ForeignStatus || row.Observed == nil):
			return Record{Created: row.ObservedRev, Modified: row.ObservedRev}, nil, true
		case kind == "status" && row.ObservedRev != 0:
			return Record{Created: row.ObservedRev, Modified: row.ObservedRev}, row.Observed, true
		}
	}
	return Record{}, nil, false
}
