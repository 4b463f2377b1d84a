package agent

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/berthd/berth/internal/agent/artifact"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// artifactSweep is how often the agent removes what is left of artifacts that nobody asks for any more.
const artifactSweep = time.Hour

// openArtifacts makes the store of what the node keeps of artifacts; nothing is touched until one is asked for.
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

// placeArtifacts has the node fetch what the container wants, and names it in its spec.
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

// watchArtifacts removes artifacts that nobody uses while their disk is fuller than ImageHigh, until it is as full as ImageLow, as images.
func (a *Agent) watchArtifacts(ctx context.Context) {
	var swept, stuck time.Duration // when it was done last, and when nothing could be removed (Boot); 0 for never
	ticker := time.NewTicker(imageDiskEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := a.Boot()
		if stuck != 0 && now-stuck < imageDiskAgain {
			continue
		}
		stuck = 0
		need, err := a.artifactNeed()
		if err == nil && need <= 0 && swept != 0 && now-swept < artifactSweep {
			continue
		}
		var removed []artifact.Removed
		if err == nil {
			removed, err = a.artifacts.Prune(a.wantedArtifacts, need)
			swept = now
		}
		for _, r := range removed {
			a.Logger.Info("an artifact was removed: the disk is full", "artifact", r.Key, "size", r.Size.String())
		}
		if left, failed := a.artifactNeed(); err != nil || failed != nil || left > 0 {
			stuck = now
			if err = errors.Join(err, failed); err != nil {
				a.Logger.Warn("artifacts were not looked at for those that can go", "error", err)
			}
		}
	}
}

// artifactNeed returns how much is to be freed, 0 where the disk is not too full.
func (a *Agent) artifactNeed() (cluster.Bytes, error) {
	used, total, err := a.artifacts.Disk()
	if err != nil || total <= 0 || a.ImageHigh >= 100 || 100*float64(used)/float64(total) < a.ImageHigh {
		return 0, err
	}
	return max(used-cluster.Bytes(float64(total)*a.ImageLow/100), 1), nil
}
