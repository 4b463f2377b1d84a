// Package taskview reads views of tasks as people do: which task most needs attention, what its state is called, and
// why it is in that state. The server's list of troubles and the tables of the command line share it.
package taskview

import (
	"fmt"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// Severities of tasks, the most severe first. See Severity.
const (
	SeverityEnded    = iota // failed, rejected or lost
	SeverityFailing         // its health checks fail, or its node is silent
	SeverityWarning         // a health check warns
	SeverityPending         // it waits for a node
	SeverityChanging        // it starts or stops
	SeverityRunning         // it runs, and nothing checks its health
	SeverityHealthy         // it runs, and its health checks pass
	SeverityDone            // it has ended otherwise
)

// Severity says how much a task needs attention.
func Severity(v api.TaskView) int {
	switch {
	case v.State == cluster.StateFailed || v.State == cluster.StateRejected || v.State == cluster.StateLost:
		return SeverityEnded
	case Unreachable(v), v.State == cluster.StateRunning && v.Health == cluster.HealthFailing:
		return SeverityFailing
	case v.State == cluster.StateRunning && v.Health == cluster.HealthWarning:
		return SeverityWarning
	case v.State == cluster.StatePending:
		return SeverityPending
	case v.State == cluster.StateRunning && v.Health == cluster.HealthHealthy:
		return SeverityHealthy
	case v.State == cluster.StateRunning:
		return SeverityRunning
	case v.State.Terminal():
		return SeverityDone
	}
	return SeverityChanging
}

// Unreachable reports whether the task's node is silent, so that its present state is unknown.
func Unreachable(v api.TaskView) bool {
	return !v.State.Terminal() && v.State != cluster.StatePending && v.Reason == cluster.ReasonNodeDown
}

// StateBackingOff is the word for the state of an attempt that its node starts again after a delay. Its records call it
// starting, or preparing if nothing of it ran yet.
const StateBackingOff = "backing-off"

// stateUnreachable is the word for the state of a task on a silent node.
const stateUnreachable = "unreachable"

// BackingOff reports whether an attempt ended and its node starts it again after a delay.
func BackingOff(v api.TaskView) bool { return !v.NextStart.IsZero() }

// States returns every word for a task's state.
func States() []string {
	words := []string{stateUnreachable, StateBackingOff}
	for _, s := range cluster.State("").Values() {
		words = append(words, string(s))
	}
	for _, h := range cluster.Health("").Values() {
		if h != cluster.HealthUnknown {
			words = append(words, string(h))
		}
	}
	return words
}

// State returns the word for a task's state: its health while it runs, else its state.
func State(v api.TaskView) string {
	if Unreachable(v) {
		return stateUnreachable
	}
	if BackingOff(v) {
		return StateBackingOff
	}
	if v.State == cluster.StateRunning && v.Health != "" && v.Health != cluster.HealthUnknown {
		return string(v.Health)
	}
	return string(v.State)
}

// Reason returns a sentence that says why a task is in its state; "" where there is nothing to say.
func Reason(v api.TaskView) string {
	switch {
	case v.Message != "":
		return v.Message
	case v.Exit != nil && v.State == cluster.StateFailed:
		return Exit(*v.Exit)
	case v.State == cluster.StateRunning, v.State == cluster.StateSucceeded:
		return ""
	}
	return string(v.Reason)
}

// Exit says how a container ended.
func Exit(e cluster.Exit) string {
	switch {
	case e.Unknown:
		return "its exit code is unknown"
	case e.OOM:
		return "killed by the kernel: out of its memory limit"
	case e.Signal != 0:
		return fmt.Sprintf("ended by signal %d", e.Signal)
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// CrashText says where a task is crash-looping, how it last ended, and how often.
func CrashText(l api.CrashLoop) string {
	text := string(l.Task) + " is crash-looping"
	if l.Node != "" {
		text += " on " + l.Node
	}
	if l.Message != "" {
		text += ": " + l.Message
	}
	var counts []string
	switch l.Times {
	case 0:
	case 1:
		counts = append(counts, "1 failed attempt")
	default:
		counts = append(counts, fmt.Sprintf("%d failed attempts", l.Times))
	}
	if restarts := cluster.RestartsText(l.Restarts); l.Restarts > 0 && !strings.Contains(l.Message, restarts) {
		counts = append(counts, restarts)
	}
	if len(counts) > 0 {
		text += " (" + strings.Join(counts, ", ") + ")"
	}
	return text
}

// Since returns the time of a task's last step: its end, its start or its placement.
func Since(v api.TaskView) time.Time {
	switch {
	case !v.Finished.IsZero():
		return v.Finished
	case !v.Started.IsZero():
		return v.Started
	}
	return v.Placed
}

// NeverRan reports whether no container of a task has started, so that the task has no output. A pending task counts as
// one that ran if its reason is the end of a program.
func NeverRan(v api.TaskView) bool {
	if !v.Started.IsZero() || v.Exit != nil || v.LogTail != "" {
		return false
	}
	switch v.State {
	case cluster.StateRunning, cluster.StateSucceeded:
		return false
	default:
	}
	switch v.Reason {
	case cluster.ReasonExit, cluster.ReasonOOM, cluster.ReasonTimeLimit, cluster.ReasonRestartLimit,
		cluster.ReasonUnknownExit, cluster.ReasonBootChanged:
		return false
	}
	return true
}

// FailedContainer returns the container whose failed end is the newest, "" for none.
func FailedContainer(v api.TaskView) string {
	var last *cluster.ContainerStatus
	for i := range v.Containers {
		c := &v.Containers[i]
		if c.Exit != nil && !c.Exit.Success() && (last == nil || c.Exit.At.After(last.Exit.At)) {
			last = c
		}
	}
	if last == nil {
		return ""
	}
	return last.Name
}

// LastLines returns the last lines of a task's output, at most most of them, in their order. The last lines of the
// named container come before newer lines of others.
func LastLines(lines []api.LogLine, container string, most int) []api.LogLine {
	kept := make([]bool, len(lines))
	for _, own := range []bool{true, false} {
		for i := len(lines) - 1; i >= 0 && most > 0; i-- {
			if (lines[i].Container == container) == own {
				kept[i] = true
				most--
			}
		}
	}
	var last []api.LogLine
	for i := range lines {
		if kept[i] {
			last = append(last, lines[i])
		}
	}
	return last
}

// Worst returns the task that most needs attention, the latest of several; nil where all run undisturbed.
func Worst(tasks []api.TaskView) *api.TaskView {
	var worst *api.TaskView
	for i := range tasks {
		t := &tasks[i]
		if Severity(*t) > SeverityChanging && t.Restarts == 0 {
			continue
		}
		if worst == nil || Severity(*t) < Severity(*worst) ||
			Severity(*t) == Severity(*worst) && Since(*t).After(Since(*worst)) {
			worst = t
		}
	}
	return worst
}

// Named returns the task that a message names, nil for none, so that the output shown beside a message is of its task.
func Named(message string, tasks []api.TaskView) *api.TaskView {
	for i := range tasks {
		if Severity(tasks[i]) < SeverityRunning && Names(message, tasks[i].ID) {
			return &tasks[i]
		}
	}
	return nil
}

// Names reports whether a text names a task.
func Names(text string, id cluster.TaskID) bool {
	for word := range strings.FieldsSeq(text) {
		if strings.Trim(word, ":;,.") == string(id) {
			return true
		}
	}
	return false
}
