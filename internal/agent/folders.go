package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// HostVolume is a folder of the machine that definitions name.
type HostVolume struct {
	Name, Path string
	ReadOnly   bool
}

// volumeRoot is the folder of the volumes that the agent keeps: a folder for each cluster, in it one for each owner, in
// it the volumes.
func (a *Agent) volumeRoot() string { return filepath.Join(a.DataDir, "volumes") }

// volumeDir returns the folder of a volume and whether the node lends it for reading only. Without a folder in the
// definition it is the agent's own. The path of a folder in the definition is free of links; the error says why the
// node does not lend it.
func (a *Agent) volumeDir(d *cluster.Desired, v *cluster.Volume) (dir string, readOnly bool, err error) {
	switch {
	case v.HostVolume != "":
		i := slices.IndexFunc(a.HostVolumes, func(h HostVolume) bool { return h.Name == v.HostVolume })
		if i < 0 {
			return "", false, fmt.Errorf(
				"the node declares no host volume %q: start its agent with --host-volume %s=PATH", v.HostVolume,
				v.HostVolume)
		}
		dir, err := realDir(a.HostVolumes[i].Path)
		return dir, a.HostVolumes[i].ReadOnly, err
	case v.Host != "":
		dir, err := a.lentPath(v.Host)
		return dir, false, err
	}
	return filepath.Join(a.volumeRoot(), d.Owner.Cluster, d.Owner.Name, v.Folder(d.Task)), false, nil
}

// lentPath returns the real path of a folder in a definition. The path must be below a folder that the agent lends,
// before and after all links in it are resolved.
func (a *Agent) lentPath(path string) (string, error) {
	if !cluster.PathWithin(path, a.HostPaths) {
		return "", fmt.Errorf("the node does not lend %s to tasks: declare it there with --host-volume, or "+
			"allow it with --host-path", path)
	}
	direct, err := realDir(path)
	if err != nil {
		return "", err
	}
	for _, lent := range a.HostPaths {
		if root, err := filepath.EvalSymlinks(lent); err == nil && cluster.PathWithin(direct, []string{root}) {
			return direct, nil
		}
	}
	return "", fmt.Errorf("%s leads to %s by a link, which the node does not lend to tasks", path, direct)
}

// realDir returns the path of a folder without links.
func realDir(path string) (string, error) {
	direct, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the node has no directory %s", path)
	}
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(direct); err != nil || !info.IsDir() {
		return "", cmp.Or(err, fmt.Errorf("%s is not a directory", path))
	}
	return direct, nil
}

// probeFolders determines the folders that the node lends to tasks, and logs once each declared folder that is missing.
func (a *Agent) probeFolders(f *cluster.Facts) {
	folders := &cluster.FolderFacts{Paths: slices.Sorted(slices.Values(a.HostPaths)), Sticky: a.stickyCopies()}
	trouble := map[string]string{}
	for _, v := range a.HostVolumes {
		if _, err := realDir(v.Path); err != nil {
			trouble[v.Name] = err.Error()
			continue
		}
		folders.HostVolumes = append(folders.HostVolumes, cluster.HostVolume{Name: v.Name, ReadOnly: v.ReadOnly})
	}
	slices.SortFunc(folders.HostVolumes, func(x, y cluster.HostVolume) int { return cmp.Compare(x.Name, y.Name) })
	a.volumes.mu.Lock()
	defer a.volumes.mu.Unlock()
	for _, name := range sortedKeys(trouble) {
		if a.volumes.trouble[name] != trouble[name] {
			a.Logger.Warn("a host volume is not there: tasks that name it are not placed here", "name", name, "error",
				trouble[name])
		}
	}
	a.volumes.trouble = trouble
	f.Folders = folders
}

// makeVolumes creates the folders that the agent keeps, records their users, and checks the folders that others keep.
func (a *Agent) makeVolumes(d *cluster.Desired, def *cluster.TaskDefinition) error {
	a.volumes.mu.Lock() // no volume is removed meanwhile
	defer a.volumes.mu.Unlock()
	for i := range def.Volumes {
		v := &def.Volumes[i]
		dir, readOnly, err := a.volumeDir(d, v)
		if err == nil && v.Kept() {
			err = a.makeVolume(dir, d, def, v)
		}
		if err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
		if readOnly && def.Writes(v.Name) {
			return fmt.Errorf("volume %s: the node lends its host volume %q for reading only, and the task "+
				"mounts it to write: mount it with read_only",
				v.Name, v.HostVolume)
		}
	}
	return nil
}

// makeVolume creates a folder that the agent keeps, unless it exists. volumes.mu is held.
func (a *Agent) makeVolume(dir string, d *cluster.Desired, def *cluster.TaskDefinition, v *cluster.Volume) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case err == nil:
	default:
		if err := a.newVolume(dir, def, v); err != nil {
			return err
		}
	}
	if err := a.markVolume(dir, v); err != nil {
		return err
	}
	return a.noteVolume(dir, d, v)
}

// newVolume creates a folder that belongs to the user who writes to it. A rename makes the folder appear with its owner
// already set.
func (a *Agent) newVolume(dir string, def *cluster.TaskDefinition, v *cluster.Volume) error {
	draft := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".new")
	err := os.MkdirAll(draft, 0o755) //nolint:gosec // the owner is set below
	if err != nil {
		return err
	}
	if uid, gid, ok := a.volumeOwner(def, v.Name); ok {
		if err := os.Chown(draft, uid, gid); err != nil {
			a.Logger.Warn("a new volume keeps the agent's user", "volume", dir, "error", err)
		}
	}
	return os.Rename(draft, dir)
}
