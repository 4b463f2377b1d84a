package attempt

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// Containers are the containers of an attempt, in the order of its definition.
type Containers []Container

// MayRun reports whether a program runs or may run.
func (c Containers) MayRun() bool {
	for i := range c {
		if c[i].live() {
			return true
		}
	}
	return false
}

// begun reports whether a program ran, runs, or may run.
func (c Containers) begun() bool {
	for i := range c {
		if c[i].begun() {
			return true
		}
	}
	return false
}

// due returns the container to launch now, or -1. A container whose start had no result is due again.
func (c Containers) due(def *cluster.TaskDefinition) int {
	for i := range c {
		if one := &c[i]; def.Containers[i].Init && one.Progress != Exited {
			if one.Progress == Running {
				return -1
			}
			return i
		}
	}
	first := -1
	for i := range c {
		one := &c[i]
		if def.Containers[i].Init || one.Progress == Running || one.Progress == Exited {
			continue
		}
		if c.afterMet(def, i) {
			return i
		}
		if first < 0 {
			first = i
		}
	}
	if first >= 0 && !c.MayRun() {
		return first // a cycle in after, which validation refuses
	}
	return -1
}

// afterMet reports whether all containers that container i starts after have been started.
func (c Containers) afterMet(def *cluster.TaskDefinition, i int) bool {
	for _, before := range def.Containers[i].After {
		j := slices.IndexFunc(def.Containers, func(c cluster.Container) bool { return c.Name == before })
		if j >= 0 && j != i && c[j].Progress != Running && c[j].Progress != Exited {
			return false
		}
	}
	return true
}

// allUp reports whether all main containers were launched in this round.
func (c Containers) allUp(def *cluster.TaskDefinition) bool {
	for i := range c {
		if p := c[i].Progress; !def.Containers[i].Init && p != Running && p != Exited {
			return false
		}
	}
	return true
}

// ending returns the container whose end ends the round, or -1: a failed init container, an essential one, or
// the last one where none is essential.
func (c Containers) ending(def *cluster.TaskDefinition) int {
	last, left, essential := -1, false, false
	for i := range c {
		one, d := &c[i], &def.Containers[i]
		switch {
		case d.Init:
			if one.Progress == Exited && !one.succeeded() {
				return i
			}
			left = left || one.Progress != Exited
		case one.Progress != Exited:
			left = true
			essential = essential || !d.Optional
		case !d.Optional:
			last, essential = c.earlier(last, i), true
		case last < 0 || def.Containers[last].Optional:
			last = i
		}
	}
	switch {
	case last < 0:
		return -1
	case !def.Containers[last].Optional:
		return last
	case left || essential:
		return -1
	}
	return last
}

// earlier returns the container that ended first.
func (c Containers) earlier(i, j int) int {
	if i < 0 || c[i].Exit == nil || c[j].Exit == nil {
		return j
	}
	if c[j].Exit.At.Before(c[i].Exit.At) {
		return j
	}
	return i
}

// ooms returns how often containers of the attempt were killed for their memory limit.
func (c Containers) ooms() (n int) {
	for i := range c {
		n += c[i].OOMs
	}
	return n
}

func (c *Container) succeeded() bool { return c.Refused == "" && c.Exit != nil && c.Exit.Success() }
