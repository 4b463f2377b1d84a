package nameserver

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// ResolverMount returns the mount of the resolver file for a container behind a bridge. The file names the agent; if
// the agent cannot answer there, the container gets the file that it would have without Berth's names.
func (n *Server) ResolverMount(d *cluster.Desired, def *cluster.TaskDefinition,
	c *cluster.Container,
) []executor.Mount {
	if def.Network != cluster.NetworkBridge || ownResolver(c) {
		return nil
	}
	gateway, ok := n.listenAtGateway(true)
	if !ok {
		return outwardResolverMount(def, c, os.ReadFile)
	}
	file, _ := n.resolver()
	path := filepath.Join(n.node.DataDir, resolverFolder, d.Owner.Cluster)
	if err := keepFile(path, []byte(file.File(gateway, d.Owner.Cluster))); err != nil {
		n.node.Logger.Warn("a task finds no services by name", "task", d.Task, "error", err)
		return outwardResolverMount(def, c, os.ReadFile)
	}
	return []executor.Mount{{Source: path, Path: resolverFile, ReadOnly: true}}
}

// keepFile writes a file unless it has the text already. The file stays the same inode, because containers mount it.
func keepFile(path string, text []byte) error {
	if old, err := os.ReadFile(path); err == nil && slices.Equal(old, text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // all users of the task read it
		return err
	}
	return os.WriteFile(path, text, 0o644) //nolint:gosec // all users of the task read it
}

// Resolver files of the machine. The second one, of systemd-resolved, lists the resolvers that it asks itself.
const (
	resolverFile = "/etc/resolv.conf"
	outwardFile  = "/run/systemd/resolve/resolv.conf"
)

// outwardResolverMount returns a replacement for the node's resolver file in a container behind a bridge. It is needed
// if the file names only the node's loopback, which the container cannot reach.
func outwardResolverMount(def *cluster.TaskDefinition, c *cluster.Container,
	read func(name string) ([]byte, error),
) []executor.Mount {
	if def.Network != cluster.NetworkBridge || ownResolver(c) {
		return nil
	}
	usual, err := read(resolverFile)
	if err != nil || namesOutward(usual) {
		return nil
	}
	if outward, err := read(outwardFile); err != nil || !namesOutward(outward) {
		return nil
	}
	return []executor.Mount{{Source: outwardFile, Path: resolverFile, ReadOnly: true}}
}

// ownResolver reports whether a container brings its own resolver file.
func ownResolver(c *cluster.Container) bool {
	return slices.ContainsFunc(c.Mounts, func(m cluster.Mount) bool { return m.Path == resolverFile }) ||
		slices.ContainsFunc(c.Files, func(f cluster.File) bool { return f.Path == resolverFile })
}

// namesOutward reports whether a resolver file names a server beyond the machine's loopback.
func namesOutward(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if addr, err := netip.ParseAddr(words[1]); err == nil && !addr.IsLoopback() {
			return true
		}
	}
	return false
}
