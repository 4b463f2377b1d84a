// Package volumes keeps the volumes of tasks on a node and lends folders of the machine to them.
//
// A volume is a folder <root>/<cluster>/<owner>/<name>. Each file next to it is written or removed as a whole, so the
// next run of the agent continues from any moment.
package volumes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
)

// Store keeps the volumes of tasks and records what the server must know of them. A volume is a folder. Next to it
// are a note of its last user, and a mark if its tasks must stay on its node. A volume appears with its owner set, by a
// rename, and disappears by a rename into the bin, whose files are removed later.
type Store struct {
	Node     *node.Node
	Folders  *Folders
	Owner    Owner
	Attempts func() []attempt.Status
	Orphans  func() []cluster.TaskID // tasks of containers without a record
	// Changed makes the node report its facts soon.
	Changed func()

	// mu is held while volumes are made, removed and noted, so that no volume is removed that an attempt has just
	// found.
	mu sync.Mutex
	// problems are the logged problems of missing host volumes. They belong to AddFacts.
	problems map[string]string
}

// Begin prepares for a run of the agent.
func (s *Store) Begin() { s.problems = map[string]string{} }

// Owner finds the user that a new volume belongs to.
type Owner interface {
	// VolumeOwner returns the user of the first container that writes to the volume; ok is false if it is unknown.
	VolumeOwner(def *cluster.TaskDefinition, volume string) (uid, gid int, ok bool)
}

// AddFacts adds the pinned volumes of the node and the folders that it lends to tasks. It logs once each declared
// folder that is missing.
func (s *Store) AddFacts(_ context.Context, f *cluster.Facts) {
	f.Volumes = s.pinned()
	c := &s.Folders.config
	lent := &cluster.FolderFacts{Paths: slices.Sorted(slices.Values(c.Paths)), Sticky: s.stickyCopies()}
	problems := map[string]string{}
	for _, v := range c.Host {
		if _, err := realDir(v.Path); err != nil {
			problems[v.Name] = err.Error()
			continue
		}
		lent.HostVolumes = append(lent.HostVolumes, cluster.HostVolume{Name: v.Name, ReadOnly: v.ReadOnly})
	}
	slices.SortFunc(lent.HostVolumes, func(x, y cluster.HostVolume) int { return cmp.Compare(x.Name, y.Name) })
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		if s.problems[name] != problems[name] {
			s.Node.Logger.Warn("a host volume is not there: tasks that name it are not placed here", "name", name,
				"error", problems[name])
		}
	}
	s.problems = problems
	f.Folders = lent
}

// Prepare creates the folders that the agent keeps, records their users, and checks the folders that others keep.
func (s *Store) Prepare(d *cluster.Desired, def *cluster.TaskDefinition) error {
	s.mu.Lock() // no volume is removed until then
	defer s.mu.Unlock()
	for i := range def.Volumes {
		v := &def.Volumes[i]
		dir, readOnly, err := s.Folders.Dir(d, v)
		if err == nil && v.Kept() {
			err = s.makeVolume(dir, d, def, v)
		}
		if err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
		if readOnly && def.Writes(v.Name) {
			return fmt.Errorf("volume %s: the host volume %q of the node is read-only, and the task "+
				"mounts it to write: mount it with read_only",
				v.Name, v.HostVolume)
		}
	}
	return nil
}

// makeVolume creates a folder that the agent keeps, unless it exists. s.mu is held.
func (s *Store) makeVolume(dir string, d *cluster.Desired, def *cluster.TaskDefinition, v *cluster.Volume) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case err == nil:
	default:
		if err := s.newVolume(dir, def, v); err != nil {
			return err
		}
	}
	if err := s.markVolume(dir, v); err != nil {
		return err
	}
	return s.noteVolume(dir, d, v)
}

// newVolume creates a folder that belongs to the user who writes to it. A rename makes the folder appear with its owner
// already set.
func (s *Store) newVolume(dir string, def *cluster.TaskDefinition, v *cluster.Volume) error {
	draft := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".new")
	err := os.MkdirAll(draft, 0o755) //nolint:gosec // the owner is set below
	if err != nil {
		return err
	}
	if uid, gid, ok := s.Owner.VolumeOwner(def, v.Name); ok {
		if err := os.Chown(draft, uid, gid); err != nil {
			s.Node.Logger.Warn("a new volume keeps the agent's user", "volume", dir, "error", err)
		}
	}
	return os.Rename(draft, dir)
}

// users returns the tasks that use or will use a volume, by its folder. A task with unknown volumes is listed
// under the folder of its owner. Attempts with nothing left use none.
func (s *Store) users() (users map[string][]cluster.TaskID) {
	users = map[string][]cluster.TaskID{}
	add := func(dir string, id cluster.TaskID) {
		if !slices.Contains(users[dir], id) {
			users[dir] = append(users[dir], id)
		}
	}
	for _, a := range s.Attempts() {
		v, def := a.View, a.Definition
		if v != nil && v.Record.Phase == attempt.PhaseGone {
			continue
		}
		parts, ok := a.Task.Parts()
		if def == nil || v == nil {
			if ok {
				add(s.Folders.ownerDir(parts.Cluster, parts.Owner), a.Task)
			}
			continue
		}
		for i := range def.Volumes {
			if dir, _, err := s.Folders.Dir(&v.Record.Desired, &def.Volumes[i]); err == nil {
				add(dir, a.Task)
			}
		}
	}
	for _, id := range s.Orphans() { // orphans may run and use any volume
		if parts, ok := id.Parts(); ok {
			add(s.Folders.ownerDir(parts.Cluster, parts.Owner), id)
		}
	}
	for dir := range users { // order-free: volumes are independent
		slices.Sort(users[dir])
	}
	return users
}
