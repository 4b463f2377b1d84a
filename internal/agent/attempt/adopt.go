package attempt

import (
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// Adopt turns a new record into that of an attempt that an earlier run of the agent began and whose record was lost.
// Held are the runs of the attempt in the named executor. Running containers continue, and ended ones count with their
// exit status. Containers without a run were not started. Adopt returns false and changes nothing if no run was
// started.
func Adopt(r *Record, name string, held []executor.Status, def *cluster.TaskDefinition, now Now) bool {
	newest := make(map[int]executor.Status, len(held))
	rounds := make(map[int]int, len(held))
	round := 0
	for _, s := range held {
		i, n, ok := parseRunID(r.Desired.UUID, s.ID)
		if !ok || i >= len(def.Containers) || s.State == executor.StatePrepared {
			continue
		}
		if n > rounds[i] {
			newest[i], rounds[i] = s, n
		}
		round = max(round, n)
	}
	if round == 0 || r.Phase != PhaseNew {
		return false
	}
	r.Admitted(name, def)
	r.Phase, r.Round, r.PortsFree = PhaseRunning, round, true
	r.Begun, r.RoundBegun = now.Boot, now.Boot
	for i := range r.Containers {
		c := &r.Containers[i]
		c.ID = RunID(r.Desired.UUID, i, round)
		if rounds[i] == round {
			c.Progress = Launched
		}
	}
	byID := make(map[executor.ID]executor.Status, len(newest))
	for _, s := range newest {
		byID[s.ID] = s
	}
	for _, s := range held {
		if i, n, ok := parseRunID(r.Desired.UUID, s.ID); ok && i < len(r.Containers) && n != round {
			r.Containers[i].Old = append(r.Containers[i].Old, s.ID)
		}
	}
	r.Recover(byID, r.Boot, now)
	return true
}

// parseRunID splits the name of a run.
func parseRunID(uuid string, id executor.ID) (container, round int, ok bool) {
	rest, mine := strings.CutPrefix(string(id), uuid+"-")
	left, right, two := strings.Cut(rest, "-")
	container, err1 := strconv.Atoi(left)
	round, err2 := strconv.Atoi(right)
	ok = mine && two && err1 == nil && err2 == nil && container >= 0 && round > 0 && RunID(uuid, container, round) == id
	return container, round, ok
}
