package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/internal/agent"
	"github.com/berthd/berth/internal/agent/hostapi"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/unixsocket"
)

// HostAPI configures the API of the node itself.
type HostAPI struct {
	// Socket is the path of the unix socket, "" for no API. Group, unless empty, is the group that may use it.
	Socket, Group string
	// Required says that the operator named the socket. Without it, a socket that cannot be opened is logged, and the
	// tasks of the node run all the same.
	Required bool
	// Listen, unless empty, is the address to serve the API on with mutual TLS.
	Listen string
	// Driver changes the tasks of a node that drives itself: its own server runs in the same process. It is nil on a
	// node that a domain drives.
	Driver HostDriver
	// Mover moves the node between its own server and those of a fleet. It is nil on a node that cannot move.
	Mover hostapi.Mover
}

// HostDriver is a driver that follows the tasks of its node until the context ends.
type HostDriver interface {
	hostapi.Driver
	Run(ctx context.Context) error
}

// hostAPI is the running API of a node.
type hostAPI struct {
	server    *hostapi.Server
	driver    HostDriver
	listeners []net.Listener
}

// openHostAPI listens on the addresses of the configuration. It returns nil without one.
func openHostAPI(ctx context.Context, c *Config, a *agent.Agent) (*hostAPI, error) {
	h := &hostAPI{driver: c.Host.Driver}
	if c.Host.Socket != "" {
		l, err := listenHost(c.Host.Socket, c.Host.Group)
		switch {
		case err == nil:
			h.listeners = append(h.listeners, l)
		case c.Host.Required:
			return nil, err
		default:
			c.Log.Warn("the API of the node is not served", "error", err)
		}
	}
	if c.Host.Listen != "" {
		l, err := listenHostTLS(ctx, c)
		if err != nil {
			return nil, errors.Join(err, h.close())
		}
		h.listeners = append(h.listeners, l)
	}
	if len(h.listeners) == 0 {
		return nil, nil //nolint:nilnil // the API is not wanted
	}
	config := hostapi.Config{Name: c.Name, Node: a, Log: c.Log}
	if h.driver != nil {
		config.Driver = h.driver
	}
	config.Mover = c.Host.Mover
	h.server = hostapi.New(config)
	return h, nil
}

// run serves until the context ends.
func (h *hostAPI) run(ctx context.Context) error {
	group, within := errgroup.WithContext(ctx)
	group.Go(func() error { return h.server.Run(within, h.listeners...) })
	if h.driver != nil {
		group.Go(func() error { return h.driver.Run(within) })
	}
	return group.Wait()
}

func (h *hostAPI) close() error {
	var errs []error
	for _, l := range h.listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// listenHost listens on the unix socket of the API. Only root, this user and the group may open it.
func listenHost(path, group string) (net.Listener, error) {
	gid := unixsocket.NoGroup
	if group != "" {
		var err error
		if gid, err = groupID(group); err != nil {
			return nil, err
		}
	}
	dir := filepath.Dir(path)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		mode := fs.FileMode(0o700)
		if gid != unixsocket.NoGroup {
			mode = 0o711 // the mode of the socket decides
		}
		if err := os.MkdirAll(dir, mode); err != nil {
			return nil, fmt.Errorf("create the folder of the host socket: %w", err)
		}
	}
	if gid != unixsocket.NoGroup {
		if err := checkReach(dir, gid, group); err != nil {
			return nil, err
		}
	}
	l, err := unixsocket.Listen(path, 0o660, gid)
	if errors.Is(err, fs.ErrPermission) && gid != unixsocket.NoGroup {
		return nil, &hinted.Error{
			Err:  fmt.Errorf("give the host socket %s to the group %s: %w", path, group, err),
			Hint: "Run the agent as root, or as a member of the group.",
		}
	}
	if err != nil {
		return nil, &hinted.Error{
			Err:  fmt.Errorf("listen on the host socket %s: %w", path, err),
			Hint: "Choose another --host-socket, or none with --host-socket none.",
		}
	}
	return l, nil
}

// groupID returns the number of a group that is given by its name or its number.
func groupID(group string) (int, error) {
	if gid, err := strconv.Atoi(group); err == nil && gid >= 0 {
		return gid, nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return 0, &hinted.Error{
			Err:  fmt.Errorf("--host-group %s: this machine has no such group", group),
			Hint: "Create the group with 'groupadd --system " + group + "', or name another one.",
		}
	}
	return strconv.Atoi(g.Gid)
}

// checkReach returns an error if a folder keeps the members of a group from a socket in it.
func checkReach(dir string, gid int, group string) error {
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return fmt.Errorf("read the folder of the host socket: %w", err)
		}
		stat, _ := info.Sys().(*syscall.Stat_t)
		if info.Mode()&0o001 == 0 && (info.Mode()&0o010 == 0 || stat == nil || int(stat.Gid) != gid) {
			return &hinted.Error{
				Err: fmt.Errorf("--host-group %s: the folder %s of the host socket keeps the members of the group out",
					group, at),
				Hint: "Choose a --host-socket in a folder that they may enter, or allow it with 'chmod o+x " + at +
					"'.",
			}
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// listenHostTLS listens on the address for mutual TLS, with the certificate of the node.
func listenHostTLS(ctx context.Context, c *Config) (net.Listener, error) {
	if c.Keeper == nil {
		return nil, &hinted.Error{
			Err: fmt.Errorf("--host-listen %s: this node has no certificate", c.Host.Listen),
			Hint: "A node gets its certificate when it joins servers over https. Without one, use the unix socket " +
				"of the API.",
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Host.Listen)
	if err != nil {
		return nil, &hinted.Error{
			Err:  fmt.Errorf("serve the API of the node: %w", err),
			Hint: "Choose another --host-listen, or leave it out.",
		}
	}
	config := c.Keeper.ServerTLS()
	return tls.NewListener(l, config), nil
}
