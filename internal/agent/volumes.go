package agent

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

// pinMark is the name of the file beside a volume that says that it keeps tasks with it. No volume is called like it.
func pinMark(volume string) string { return "." + volume + ".pinned" }

// markVolume notes beside a volume whether it keeps tasks with it, as the newest definition that used it has it. A
// change is told soon.
func (a *Agent) markVolume(dir string, v *cluster.Volume) error {
	if a.Volatile {
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
	a.machine.lookAgain()
	return nil
}

// pinnedVolumes returns the keys of the volumes on the node that keep tasks with them, in order. A mark without its
// volume counts for nothing.
func (a *Agent) pinnedVolumes() (keys []string) {
	if a.Volatile {
		return nil
	}
	marks, _ := filepath.Glob(filepath.Join(a.volumeRoot(), "*", "*", ".*.pinned")) // the pattern is a good one
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
		a.Logger.Error("not all volumes that keep their tasks can be told of: those tasks may be placed elsewhere",
			"volumes", len(keys), "told", cluster.MaxNodeVolumes)
		keys = keys[:cluster.MaxNodeVolumes]
	}
	return keys
}
