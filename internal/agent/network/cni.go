package network

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// Names in the network's list and in the folders of its plugins.
const (
	networkName = "berth"
	linkName    = "eth0" // of a task
	listFile    = "berth.conflist"
)

// pluginNames returns the plugins in the list.
func pluginNames() []string { return []string{"bridge", "host-local"} }

// plugins connects namespaces to the bridge by CNI's plugins. All methods may be called concurrently for different
// attempts.
type plugins struct {
	dir     string // of the spaces
	subnet  netip.Prefix
	folders []string // with the programs of plugins
	bridge  string
	records *records
	tools   tools
}

// list returns the network in CNI's form. The plugins manage addresses and links; the package manages published ports
// and access (rules.go).
func (p *plugins) list() ([]byte, error) {
	return json.MarshalIndent(map[string]any{
		"cniVersion": "0.4.0", // all plugins in use know this version
		"name":       networkName,
		"plugins": []any{map[string]any{
			"type": "bridge", "bridge": p.bridge, "isGateway": true, "ipMasq": false,
			"hairpinMode": true, // with br_netfilter a task reaches itself at the node by the port that it came from
			"ipam": map[string]any{
				"type": "host-local", "dataDir": filepath.Join(p.dir, "ipam"),
				"ranges": []any{[]any{map[string]any{
					"subnet":  p.subnet.String(),
					"gateway": firstAddress(p.subnet).String(),
				}}},
				"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
			},
		}},
	}, "", "  ")
}

// cni returns the caller of the plugins and its arguments.
func (p *plugins) cni(r record) (*libcni.CNIConfig, *libcni.NetworkConfigList, *libcni.RuntimeConf, error) {
	text, err := p.list()
	if err != nil {
		return nil, nil, nil, err
	}
	// The file shows people the arguments of the plugins.
	if old, err := os.ReadFile(filepath.Join(p.dir, listFile)); err != nil || string(old) != string(text) {
		if err := os.WriteFile(filepath.Join(p.dir, listFile), text, 0o600); err != nil {
			return nil, nil, nil, fmt.Errorf("write the network's list: %w", err)
		}
	}
	list, err := libcni.NetworkConfFromBytes(text)
	if err != nil {
		return nil, nil, nil, err
	}
	run := &libcni.RuntimeConf{ContainerID: r.UUID, IfName: linkName}
	if file := p.records.spaceFile(r.UUID); isSpace(file) {
		run.NetNS = file
	}
	config := libcni.NewCNIConfigWithCacheDir(p.folders, filepath.Join(p.dir, "cache"), &caller{tools: p.tools})
	return config, list, run, nil
}

// attach connects the attempt's namespace to the bridge, creates the bridge if necessary, and returns the attempt's
// address.
func (p *plugins) attach(ctx context.Context, r record) (string, error) {
	c, list, run, err := p.cni(r)
	if err != nil {
		return "", err
	}
	said, err := c.AddNetworkList(ctx, list, run)
	if err != nil && slices.Contains(p.leases(), r.UUID) { // from a run of the agent whose record is lost
		if again := c.DelNetworkList(ctx, list, run); again == nil {
			said, err = c.AddNetworkList(ctx, list, run)
		}
	}
	if err != nil {
		return "", err
	}
	result, err := types100.NewResultFromResult(said)
	if err != nil {
		return "", fmt.Errorf("understand the plugin bridge: %w", err)
	}
	for _, ip := range result.IPs {
		if addr, ok := netip.AddrFromSlice(ip.Address.IP); ok && addr.Unmap().Is4() {
			return addr.Unmap().String(), nil
		}
	}
	return "", errors.New("the plugin bridge gave no address of IPv4")
}

// detach undoes attach, however much of it was done.
func (p *plugins) detach(ctx context.Context, r record) error {
	if len(p.lacking()) > 0 && r.Address == "" && !slices.Contains(p.leases(), r.UUID) {
		return nil // no plugin was called for it, and none is installed
	}
	c, list, run, err := p.cni(r)
	if err != nil {
		return err
	}
	return c.DelNetworkList(ctx, list, run)
}

// leases returns the attempts with reserved addresses, in order.
func (p *plugins) leases() (uuids []string) {
	files, _ := filepath.Glob(filepath.Join(p.dir, "ipam", networkName, "*.*.*.*")) // the pattern is valid
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(f)
		if lines.Scan() && lines.Text() != "" {
			uuids = append(uuids, strings.TrimSpace(lines.Text()))
		}
		_ = f.Close() // opened for reading only
	}
	slices.Sort(uuids)
	return slices.Compact(uuids)
}

// lacking returns the plugins that are not installed.
func (p *plugins) lacking() (names []string) {
	for _, name := range pluginNames() {
		if _, err := invoke.FindInPath(name, p.folders); err != nil {
			names = append(names, name)
		}
	}
	return names
}

// caller runs plugins for libcni.
type caller struct {
	tools tools
	version.PluginDecoder
}

// FindInPath implements invoke.Exec.
func (*caller) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}

// ExecPlugin implements invoke.Exec. A plugin, and every program that it calls, holds the lock of the records.
func (c *caller) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	out, err := c.tools.run(ctx, path, nil, env, string(stdin))
	if err == nil {
		return out.stdout, nil
	}
	name := filepath.Base(path)
	var said types.Error
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case json.Unmarshal(out.stdout, &said) == nil && said.Msg != "":
		return nil, fmt.Errorf("plugin %s: %w", name, &said)
	case len(out.stderr) > 0:
		return nil, fmt.Errorf("plugin %s: %w: %s", name, err, strings.TrimSpace(string(out.stderr)))
	}
	return nil, fmt.Errorf("plugin %s: %w", name, err)
}
