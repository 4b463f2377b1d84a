package volumes

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
)

// HostVolume is a folder of the machine that definitions name.
type HostVolume struct {
	Name, Path string
	ReadOnly   bool
}

// Config configures the folders that the node gives to tasks. All paths are absolute.
type Config struct {
	// Host are folders that definitions name. Paths are folders below which definitions may name any path: "/" allows
	// every path, an empty list allows none.
	Host  []HostVolume
	Paths []string
}

// Folders finds the folders of volumes: those that the agent keeps, and those of the machine that it lends to tasks.
// All methods may be called concurrently.
type Folders struct {
	config Config
	// root is the folder of the volumes that the agent keeps: a folder for each cluster, in it one for each owner, in
	// it the volumes.
	root string
}

// NewFolders returns the folders of a node. The agent keeps its volumes in the data directory.
func NewFolders(n *node.Node, c Config) *Folders {
	return &Folders{config: c, root: filepath.Join(n.DataDir, "volumes")}
}

// ownerDir is the folder of the volumes that the agent keeps for one owner.
func (l *Folders) ownerDir(cluster, owner string) string {
	return filepath.Join(l.root, cluster, owner)
}

// Dir returns the folder of a volume and whether the node lends it for reading only. Without a folder in the
// definition it is the agent's own. The path of a folder in the definition is free of links; the error says why the
// node does not share it.
func (l *Folders) Dir(d *cluster.Desired, v *cluster.Volume) (dir string, readOnly bool, err error) {
	switch {
	case v.HostVolume != "":
		i := slices.IndexFunc(l.config.Host, func(h HostVolume) bool { return h.Name == v.HostVolume })
		if i < 0 {
			return "", false, fmt.Errorf(
				"the node declares no host volume %q: start its agent with --host-volume %s=PATH", v.HostVolume,
				v.HostVolume)
		}
		dir, err := realDir(l.config.Host[i].Path)
		return dir, l.config.Host[i].ReadOnly, err
	case v.Host != "":
		dir, err := l.lentPath(v.Host)
		return dir, false, err
	}
	return filepath.Join(l.ownerDir(d.Owner.Cluster, d.Owner.Name), v.Folder(d.Task)), false, nil
}

// lentPath returns the real path of a folder in a definition. The path must be below a folder that the agent lends,
// before and after all links in it are resolved.
func (l *Folders) lentPath(path string) (string, error) {
	if !cluster.PathWithin(path, l.config.Paths) {
		return "", fmt.Errorf("the node does not share %s with tasks: declare it there with --host-volume, or "+
			"allow it with --host-path", path)
	}
	direct, err := realDir(path)
	if err != nil {
		return "", err
	}
	for _, lent := range l.config.Paths {
		if root, err := filepath.EvalSymlinks(lent); err == nil && cluster.PathWithin(direct, []string{root}) {
			return direct, nil
		}
	}
	return "", fmt.Errorf("%s is a link to %s, which the node does not share with tasks", path, direct)
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
