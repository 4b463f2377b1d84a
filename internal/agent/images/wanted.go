package images

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/agent/artifact"
	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
)

// Wanted knows what attempts use or will use, so that a cleanup leaves it.
type Wanted struct {
	Attempts func() []attempt.Status
}

// containers yields the containers of the attempts that run or will run, each with its task, ordered by task.
func (w *Wanted) containers(yield func(task cluster.TaskID, c *cluster.Container)) {
	all := w.Attempts()
	slices.SortStableFunc(all, func(x, y attempt.Status) int {
		return cmp.Or(cmp.Compare(x.Task, y.Task), cmp.Compare(x.Attempt, y.Attempt))
	})
	for _, a := range all {
		v := a.View
		if a.Definition != nil &&
			(v == nil || v.Record.Phase != attempt.PhaseEnded && v.Record.Phase != attempt.PhaseGone) {
			for i := range a.Definition.Containers {
				yield(a.Task, &a.Definition.Containers[i])
			}
		}
	}
}

// Images returns a user of each image that attempts use or will use. The key is the digest of a pinned image,
// otherwise the image's normal name.
func (w *Wanted) Images() map[string]string {
	users := map[string]string{}
	w.containers(func(task cluster.TaskID, c *cluster.Container) {
		if key := imageKey(c); key != "" {
			users[key] = "task " + string(task)
		}
	})
	return users
}

func imageKey(c *cluster.Container) string {
	switch {
	case c.Image == "":
		return ""
	case c.Pinned() != "":
		return c.Pinned()
	}
	return cluster.NormalImage(c.Image)
}

// Artifacts returns the keys of the artifacts that attempts use or will use.
func (w *Wanted) Artifacts() map[string]bool {
	keys := map[string]bool{}
	w.containers(func(_ cluster.TaskID, c *cluster.Container) {
		for i := range c.Artifacts {
			keys[artifact.Key(&c.Artifacts[i])] = true
		}
	})
	return keys
}
