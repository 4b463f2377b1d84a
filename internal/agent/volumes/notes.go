package volumes

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

// volumeNote is the content of a file next to a volume: the last user of the volume.
type volumeNote struct {
	Task   cluster.TaskID `json:"task"`
	UUID   string         `json:"uuid"`
	Sticky bool           `json:"sticky,omitempty"`
	// Placed is when that attempt was placed, by the control plane's clock. Used is when it last had the volume, by
	// this machine's clock.
	Placed time.Time `json:"placed"`
	Used   time.Time `json:"used"`
	// Incarnation and Plan are those of the plan that placed the attempt.
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

// noteFile is the path of a volume's note. No volume has such a name.
func noteFile(dir string) string {
	return filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".note")
}

// readNote returns a volume's note, or the zero note if it is missing or unreadable. The next attempt writes it again.
func readNote(dir string) (n volumeNote) {
	b, err := os.ReadFile(noteFile(dir))
	if err != nil || json.Unmarshal(b, &n) != nil {
		return volumeNote{}
	}
	return n
}

// writeNote writes a volume's note atomically.
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

// noteVolume records that an attempt has a volume now. The node reports a sticky volume soon. s.mu is held.
func (s *Store) noteVolume(dir string, d *cluster.Desired, v *cluster.Volume) error {
	if s.Node.Volatile {
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
		s.Changed()
	}
	return nil
}

// NoteLeft records when an attempt left its volumes. A failure does little harm: the volumes count as unused for
// longer.
func (s *Store) NoteLeft(d *cluster.Desired, def *cluster.TaskDefinition) {
	if s.Node.Volatile || def == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range def.Volumes {
		v := &def.Volumes[i]
		dir, _, err := s.Folders.Dir(d, v)
		if err != nil || !v.Kept() {
			continue
		}
		if n := readNote(dir); n.UUID == d.UUID {
			if err := writeNote(dir, noteOf(d, v)); err != nil {
				s.Node.Logger.Info("the last use of a volume cannot be recorded", "volume", dir, "error", err)
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

// kept returns all volumes that the agent keeps, ordered by key.
func (s *Store) kept() (all []keptVolume) {
	if s.Node.Volatile {
		return nil
	}
	dirs, _ := filepath.Glob(filepath.Join(s.Folders.root, "*", "*", "*")) // the pattern is valid
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

// stickyCopies returns the copies of sticky volumes on the node, ordered by key.
func (s *Store) stickyCopies() (all []cluster.StickyCopy) {
	for _, v := range s.kept() {
		if v.note.Sticky {
			all = append(all, cluster.StickyCopy{
				Key: v.key, Placed: v.note.Placed, Incarnation: v.note.Incarnation,
				Plan: v.note.Plan,
			})
		}
	}
	if len(all) > cluster.MaxNodeVolumes {
		s.Node.Logger.Error("too many sticky volumes: some are not reported, and their tasks may be placed elsewhere",
			"volumes", len(all), "reported", cluster.MaxNodeVolumes)
		all = all[:cluster.MaxNodeVolumes]
	}
	return all
}
