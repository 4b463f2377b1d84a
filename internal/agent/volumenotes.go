package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// volumeNote is what stands in a file beside a volume: who had it last. A volume of an agent that wrote no notes has
// none.
type volumeNote struct {
	Task   cluster.TaskID `json:"task"`
	UUID   string         `json:"uuid"`
	Sticky bool           `json:"sticky,omitempty"`
	// Placed is when that attempt was placed, by the control plane's clock; Used when it was last seen with the volume,
	// by this machine's.
	Placed time.Time `json:"placed"`
	Used   time.Time `json:"used"`
	// Incarnation and Plan are those of the plan that placed it. A note of a build before has none.
	Incarnation uint64 `json:"incarnation,omitempty"`
	Plan        uint64 `json:"plan,omitempty"`
}

// noteOf returns the note of an attempt that has a volume now.
func noteOf(d *cluster.Desired, v *cluster.Volume) volumeNote {
	return volumeNote{
		Task: d.Task, UUID: d.UUID, Sticky: v.Sticky, Placed: d.Placed, Used: time.Now(),
		Incarnation: d.Token.Incarnation, Plan: d.Plan,
	}
}

// noteFile is the file of a volume's note. No volume is called like it.
func noteFile(dir string) string {
	return filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".note")
}

// readNote returns a volume's note, the zero one where there is none that can be read: it is written anew with the next
// attempt.
func readNote(dir string) (n volumeNote) {
	b, err := os.ReadFile(noteFile(dir))
	if err != nil || json.Unmarshal(b, &n) != nil {
		return volumeNote{}
	}
	return n
}

// writeNote writes a volume's note as a whole or not at all.
func writeNote(dir string, n volumeNote) error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	draft := noteFile(dir) + ".new"
	if err := os.WriteFile(draft, b, 0o600); err != nil {
		return err
	}
	return os.Rename(draft, noteFile(dir))
}

// noteVolume notes that an attempt has a volume now. The servers hear soon of one that sticks to its task. volumes.mu
// is held.
func (a *Agent) noteVolume(dir string, d *cluster.Desired, v *cluster.Volume) error {
	if a.Volatile {
		return nil
	}
	before := readNote(dir)
	if before.UUID == d.UUID && before.Sticky == v.Sticky && before.Plan == d.Plan {
		return nil
	}
	if err := writeNote(dir, noteOf(d, v)); err != nil {
		return fmt.Errorf("note who has it: %w", err)
	}
	if v.Sticky || before.Sticky {
		a.machine.lookAgain()
	}
	return nil
}

// leftVolumes notes until when an attempt had its volumes. What cannot be noted is of little matter: they count as
// unused for longer.
func (a *Agent) leftVolumes(d *cluster.Desired, def *cluster.TaskDefinition) {
	if a.Volatile || def == nil {
		return
	}
	a.volumes.mu.Lock()
	defer a.volumes.mu.Unlock()
	for i := range def.Volumes {
		v := &def.Volumes[i]
		dir, _, err := a.volumeDir(d, v)
		if err != nil || !v.Kept() {
			continue
		}
		if n := readNote(dir); n.UUID == d.UUID {
			if err := writeNote(dir, noteOf(d, v)); err != nil { // also what a build before left out
				a.Logger.Info("until when a volume was used is not noted", "volume", dir, "error", err)
			}
		}
	}
}

// keptVolume is a volume that the agent keeps.
type keptVolume struct {
	key, dir string
	pinned   bool
	note     volumeNote
}

// keptVolumes returns all volumes that the agent keeps, ordered by key.
func (a *Agent) keptVolumes() (all []keptVolume) {
	if a.Volatile {
		return nil
	}
	dirs, _ := filepath.Glob(filepath.Join(a.volumeRoot(), "*", "*", "*")) // the pattern is a good one
	for _, dir := range dirs {
		name, owner := filepath.Base(dir), filepath.Dir(dir)
		if strings.HasPrefix(name, ".") || strings.HasPrefix(filepath.Base(filepath.Dir(owner)), ".") {
			continue
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			continue
		}
		_, err := os.Lstat(filepath.Join(owner, pinMark(name)))
		all = append(all, keptVolume{
			key: cluster.VolumeKey(cluster.OwnerRef{
				Cluster: filepath.Base(filepath.Dir(owner)),
				Name:    filepath.Base(owner),
			}, name),
			dir: dir, pinned: err == nil, note: readNote(dir),
		})
	}
	slices.SortFunc(all, func(x, y keptVolume) int { return strings.Compare(x.key, y.key) })
	return all
}

// stickyCopies returns which volumes the node has that stick to a task, ordered by key.
func (a *Agent) stickyCopies() (all []cluster.StickyCopy) {
	for _, v := range a.keptVolumes() {
		if v.note.Sticky {
			all = append(all, cluster.StickyCopy{
				Key: v.key, Placed: v.note.Placed, Incarnation: v.note.Incarnation,
				Plan: v.note.Plan,
			})
		}
	}
	if len(all) > cluster.MaxNodeVolumes {
		a.Logger.Error("not all volumes that stick to a task can be told of: their tasks may be placed elsewhere",
			"volumes", len(all), "told", cluster.MaxNodeVolumes)
		all = all[:cluster.MaxNodeVolumes]
	}
	return all
}
