package nameserver

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

// A file that tasks mount keeps its inode when its text changes, and is not written without a change.
func TestKeepFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "resolv", "default")
	for _, text := range []string{"one", "one", "other"} {
		before, _ := os.Stat(name)
		if err := keepFile(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
		after, err := os.Stat(name)
		if err != nil || before != nil && !os.SameFile(before, after) {
			t.Errorf("%s: another file, or %v", text, err)
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != text {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

// Behind a bridge the resolver on the node's loopback does not answer: containers see that resolver's own servers.
func TestResolverBehindABridge(t *testing.T) {
	const stub, outward = "nameserver 127.0.0.53\noptions edns0\n", "# asked\nnameserver 192.0.2.53\n"
	for name, c := range map[string]struct {
		mode           cluster.NetworkMode
		usual, outward string
		container      cluster.Container
		want           int
	}{
		"a stub":           {cluster.NetworkBridge, stub, outward, cluster.Container{}, 1},
		"on the host":      {"", stub, outward, cluster.Container{}, 0},
		"without any":      {cluster.NetworkNone, stub, outward, cluster.Container{}, 0},
		"not a stub":       {cluster.NetworkBridge, outward, outward, cluster.Container{}, 0},
		"nobody else":      {cluster.NetworkBridge, stub, "", cluster.Container{}, 0},
		"a stub of a stub": {cluster.NetworkBridge, stub, "nameserver ::1\n", cluster.Container{}, 0},
		"a file of its own": {
			cluster.NetworkBridge, stub, outward,
			cluster.Container{Files: []cluster.File{{Path: resolverFile}}},
			0,
		},
		"a volume of its own": {
			cluster.NetworkBridge, stub, outward,
			cluster.Container{Mounts: []cluster.Mount{{Path: resolverFile}}},
			0,
		},
	} {
		read := func(file string) ([]byte, error) {
			if file == outwardFile && c.outward == "" {
				return nil, errors.New("no such file")
			}
			return []byte(map[string]string{resolverFile: c.usual, outwardFile: c.outward}[file]), nil
		}
		got := outwardResolverMount(&cluster.TaskDefinition{Network: c.mode}, &c.container, read)
		if len(got) != c.want {
			t.Errorf("%s: got %+v, want %d mounts", name, got, c.want)
		}
	}
}
