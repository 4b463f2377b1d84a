package agent

import (
	"context"
	"path/filepath"

	"github.com/berthd/berth/internal/agent/artifact"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// openArtifacts returns the node's store of artifacts. It touches no file before the first request.
func (a *Agent) openArtifacts() *artifact.Store {
	c := a.Artifacts
	if c.Dir == "" {
		c.Dir = filepath.Join(a.DataDir, "artifacts")
	}
	if c.Logger == nil {
		c.Logger = a.Logger
	}
	return artifact.New(c)
}

// placeArtifacts fetches the container's artifacts and adds them to its spec.
func (t *task) placeArtifacts(ctx context.Context, c *cluster.Container, spec *executor.Spec) error {
	if t.agent.Volatile {
		return nil
	}
	for i := range c.Artifacts {
		want := &c.Artifacts[i]
		path, err := t.agent.artifacts.Get(ctx, want, t.progress(c.Name))
		if err != nil {
			return err
		}
		m := executor.Mount{Source: path, Path: want.Path, ReadOnly: true}
		if want.Shared() {
			spec.Mounts = append(spec.Mounts, m)
		} else {
			spec.Copies = append(spec.Copies, m)
		}
	}
	return nil
}

// wantedArtifacts returns the keys of the artifacts that attempts use or will use.
func (a *Agent) wantedArtifacts() map[string]bool {
	wanted := map[string]bool{}
	a.wantedContainers(func(_ cluster.TaskID, c *cluster.Container) {
		for i := range c.Artifacts {
			wanted[artifact.Key(&c.Artifacts[i])] = true
		}
	})
	return wanted
}
