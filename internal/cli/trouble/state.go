package trouble

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// Rank orders tasks by how much they need somebody's attention.
func Rank(t api.TaskView) int {
	switch {
	case t.State == cluster.StateFailed || t.State == cluster.StateRejected || t.State == cluster.StateLost:
		return 0
	case Unreachable(t), t.State == cluster.StateRunning && t.Health == cluster.HealthFailing:
		return 1
	case t.State == cluster.StateRunning && t.Health == cluster.HealthWarning:
		return 2
	case t.State == cluster.StatePending:
		return 3
	case t.State == cluster.StateRunning && t.Health == cluster.HealthHealthy:
		return 6
	case t.State == cluster.StateRunning:
		return 5
	case t.State.Terminal():
		return 7
	}
	return 4
}

// Unreachable reports whether a task's node fell silent, so that nobody knows how the task does.
func Unreachable(t api.TaskView) bool {
	return !t.State.Terminal() && t.State != cluster.StatePending && t.Reason == cluster.ReasonNodeDown
}

// ShownState is a task's health while it runs, else its state.
func ShownState(v api.TaskView) string {
	if Unreachable(v) {
		return "unreachable"
	}
	if v.State == cluster.StateRunning && v.Health != "" && v.Health != cluster.HealthUnknown {
		return string(v.Health)
	}
	return string(v.State)
}

// ReasonOf says in a sentence why a task is as it is; nothing while it is well.
func ReasonOf(v api.TaskView) string {
	switch {
	case v.Message != "":
		return v.Message
	case v.Exit != nil && v.State == cluster.StateFailed:
		return ExitText(*v.Exit)
	case v.State == cluster.StateRunning, v.State == cluster.StateSucceeded:
		return ""
	}
	return string(v.Reason)
}

// ExitText says how a container ended.
func ExitText(e cluster.Exit) string {
	switch {
	case e.Unknown:
		return "nobody saw how it ended"
	case e.OOM:
		return "killed by the kernel: out of its memory limit"
	case e.Signal != 0:
		return fmt.Sprintf("ended by signal %d", e.Signal)
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// Since is when the newest part of a task's life began.
func Since(v api.TaskView) time.Time {
	switch {
	case !v.Finished.IsZero():
		return v.Finished
	case !v.Started.IsZero():
		return v.Started
	}
	return v.Placed
}

// Above returns a number as text if it is more than usual.
func Above(n, usual int) string {
	if n <= usual {
		return ""
	}
	return strconv.Itoa(n)
}

// HealthyOf says how many tasks of each version are healthy. Old versions of one definition are one.
func HealthyOf(versions []api.VersionCount) string {
	restart := sameDefinition(versions) // the definition does not tell old and new apart
	var parts []string
	var old []cluster.Ref
	healthy := map[cluster.Ref]int{}
	for _, v := range versions {
		switch {
		case v.Newest && restart:
			parts = append(parts, fmt.Sprintf("new: %d of %d healthy", v.Healthy, max(v.Desired, v.Begun)))
		case v.Newest:
			parts = append(parts, fmt.Sprintf("%s: %d of %d healthy", v.Definition, v.Healthy, max(v.Desired, v.Begun)))
		default:
			if !slices.Contains(old, v.Definition) {
				old = append(old, v.Definition)
			}
			healthy[v.Definition] += v.Healthy
		}
	}
	for _, ref := range old {
		label := ref.String()
		if restart {
			label = "old"
		}
		parts = append(parts, fmt.Sprintf("%s: %d healthy", label, healthy[ref]))
	}
	return strings.Join(parts, ", ")
}

// sameDefinition reports whether several versions run the same definition.
func sameDefinition(versions []api.VersionCount) bool {
	return len(versions) > 1 && !slices.ContainsFunc(versions, func(v api.VersionCount) bool {
		return v.Definition != versions[0].Definition
	})
}

// TaskTrouble says what stands in a task's way, or is nil.
func TaskTrouble(v api.TaskView) *Trouble {
	if ReasonOf(v) == "" {
		return nil
	}
	owner := session.OwnerName(v.Owner)
	return explain(Trouble{Object: owner.String(), State: string(v.State)}, "", []api.TaskView{v})
}
