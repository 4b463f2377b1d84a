package attempt

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// View is a copy of an attempt's state for readers on other goroutines. It never changes.
type View struct {
	// Record has its own slice of containers.
	Record Record
	// Definition is nil until the agent has it.
	Definition *cluster.TaskDefinition
}

// Status is what the agent knows of one attempt, for readers on other goroutines.
type Status struct {
	ID
	// Cores are the CPUs that are exclusively the attempt's.
	Cores []int
	// View is the newest state, nil before the attempt's first step.
	View *View
	// Definition is the attempt's definition, nil until the agent has it. It can be newer than that of the View.
	Definition *cluster.TaskDefinition
}

// NameOf returns the name of a container, "" if it is unknown. Records hold containers in the order of the definition.
func (v *View) NameOf(i int) string {
	if v.Definition == nil || i >= len(v.Definition.Containers) {
		return ""
	}
	return v.Definition.Containers[i].Name
}

// ReservedMemory returns the memory that the scheduler counts for the attempt. The definition must be known.
func (v *View) ReservedMemory() (sum cluster.Bytes) {
	for i := range v.Definition.Containers {
		sum += v.Definition.Containers[i].Resources.Memory
	}
	return sum
}

// Running returns the index and the id of a running container: the named one, or the first essential one. A view that
// is nil has none.
func (v *View) Running(name string) (int, executor.ID, error) {
	if v == nil || v.Definition == nil {
		return 0, "", executor.ErrNotRunning
	}
	i := slices.IndexFunc(v.Definition.Containers, func(c cluster.Container) bool {
		return c.Name == name || name == "" && !c.Init && !c.Optional
	})
	if i < 0 {
		names := make([]string, len(v.Definition.Containers))
		for i := range names {
			names[i] = v.Definition.Containers[i].Name
		}
		return 0, "", fmt.Errorf("the task has no container %q; it has %s", name, strings.Join(names, ", "))
	}
	if i >= len(v.Record.Containers) || v.Record.Containers[i].Progress != Running {
		return 0, "", fmt.Errorf("container %s: %w", v.Definition.Containers[i].Name, executor.ErrNotRunning)
	}
	return i, v.Record.Containers[i].ID, nil
}

// ID names an attempt.
type ID struct {
	Task    cluster.TaskID
	Attempt int
	UUID    string
}

// ValidUUID reports whether an attempt's id is safe as part of a file name and of an executor's id.
func ValidUUID(s string) bool {
	if s == "" || len(s) > 60 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && (c != '-' || i == 0) {
			return false
		}
	}
	return true
}
