package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// pinMark is the name of the file next to a volume that marks it as pinned: its tasks stay on its node. No volume has
// such a name.
func pinMark(volume string) string { return "." + volume + ".pinned" }

// markVolume sets or removes the mark of a volume, as the newest definition that used it says. The node reports a
// change soon.
func (s *Store) markVolume(dir string, v *cluster.Volume) error {
	if s.Node.Volatile {
		return nil
	}
	mark := filepath.Join(filepath.Dir(dir), pinMark(filepath.Base(dir)))
	_, err := os.Lstat(mark)
	switch {
	case v.Pin && errors.Is(err, fs.ErrNotExist):
		err = os.WriteFile(mark, nil, 0o600)
	case !v.Pin && err == nil:
		err = os.Remove(mark)
	default:
		return nil
	}
	if err != nil {
		return fmt.Errorf("note that it keeps its tasks: %w", err)
	}
	s.Changed()
	return nil
}

// pinned returns the keys of the pinned volumes on the node, in order. Marks without a volume do not count.
func (s *Store) pinned() (keys []string) {
	if s.Node.Volatile {
		return nil
	}
	marks, _ := filepath.Glob(filepath.Join(s.Folders.root, "*", "*", ".*.pinned")) // the pattern is valid
	for _, mark := range marks {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(mark), "."), ".pinned")
		if info, err := os.Stat(filepath.Join(filepath.Dir(mark), name)); err != nil || !info.IsDir() {
			continue
		}
		owner := cluster.OwnerRef{
			Cluster: filepath.Base(filepath.Dir(filepath.Dir(mark))),
			Name:    filepath.Base(filepath.Dir(mark)),
		}
		keys = append(keys, cluster.VolumeKey(owner, name))
	}
	slices.Sort(keys)
	if len(keys) > cluster.MaxNodeVolumes {
		s.Node.Logger.Error("too many pinned volumes: some are not reported, and their tasks may be placed elsewhere",
			"volumes", len(keys), "reported", cluster.MaxNodeVolumes)
		keys = keys[:cluster.MaxNodeVolumes]
	}
	return keys
}
