package serving

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/agent/volumes"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// Values of --host-path that allow no folder and any folder.
const (
	noHostPaths  = "none"
	anyHostPaths = "/"
)

// volumeFlags name the folders of a node that tasks may use.
type volumeFlags struct {
	declared, paths []string
	volumes         []volumes.HostVolume // the parsed form of declared
	hostPaths       []string
}

func (f *volumeFlags) addFlags(cmd *cobra.Command, local bool) {
	paths := []string{noHostPaths}
	if local {
		paths = []string{anyHostPaths}
	}
	cmd.Flags().StringArrayVar(&f.declared, "host-volume", nil,
		"folder of this machine that task definitions can name, as `NAME=PATH`, or read-only "+
			"as NAME=PATH:ro; may be given several times")
	cmd.Flags().StringArrayVar(&f.paths, "host-path", paths,
		"`PATH` of this machine below which a volume may use any folder (host), in clusters with the permission "+
			"host-path, or none; may be given several times; / gives authors of such tasks root access")
}

// check parses the flags and adds their faults to list.
func (f *volumeFlags) check(list *session.Faults) {
	for _, text := range f.declared {
		name, path, ok := strings.Cut(text, "=")
		path, readOnly := strings.CutSuffix(path, ":ro")
		v := volumes.HostVolume{Name: name, Path: path, ReadOnly: readOnly}
		switch {
		case !ok || !cluster.ValidName(name):
			list.Add("--host-volume %q: want NAME=PATH, with a name of lower-case letters, digits and \"-\"", text)
		case !filepath.IsAbs(path):
			list.Add("--host-volume %q: want an absolute path", text)
		case slices.ContainsFunc(f.volumes, func(o volumes.HostVolume) bool { return o.Name == name }):
			list.Add("--host-volume %q: %s is declared twice", text, name)
		default:
			v.Path = filepath.Clean(path)
			f.volumes = append(f.volumes, v)
		}
	}
	if len(f.volumes) > cluster.MaxHostVolumes {
		list.Add("--host-volume is given %d times, at most %d are allowed", len(f.volumes), cluster.MaxHostVolumes)
	}
	if len(f.paths) == 1 && f.paths[0] == noHostPaths {
		return
	}
	for _, path := range f.paths {
		if !filepath.IsAbs(path) || !cluster.CleanPath(filepath.Clean(path)) {
			list.Add("--host-path %q: want an absolute path, or none alone", path)
			continue
		}
		f.hostPaths = append(f.hostPaths, filepath.Clean(path))
	}
	if len(f.paths) > cluster.MaxHostPaths {
		list.Add("--host-path is given %d times, at most %d are allowed", len(f.paths), cluster.MaxHostPaths)
	}
}
