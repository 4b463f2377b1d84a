// Package network makes the networks of tasks that do not use their node's: a network namespace for each attempt, which
// all of its containers share. In the mode none it has only a loopback. In the mode bridge CNI's plugins connect it to
// a bridge of the node. It then reaches other machines with the node's address, and the ports of the task are
// published: a number on the node leads to the number that the program listens on.
//
// A namespace exists from the first container of its attempt until the attempt is cleared, across restarts of
// containers and of the agent. A mount keeps it, and a record next to the mount describes it. All published ports are
// one table of the packet filter, which is always rewritten as a whole from the records. So after a crash at any moment
// the next agent finds the records, continues from there, and removes unfinished and unused parts. The programs that
// the package calls hold a lock, and the next agent waits for it, so that none of them still works unseen.
package network

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor/outlive"
)

// DefaultSubnet is the subnet of tasks' addresses unless a node has another one. Nodes may share it, because it is not
// routed beyond a node.
const DefaultSubnet = "10.213.0.0/20"

// Limits of a subnet's length: from 5 tasks up to more than a node can hold.
const (
	minBits = 8
	maxBits = 29
)

// toolTimeout limits one call of a plugin or of nft.
const toolTimeout = 30 * time.Second

// Config configures Spaces.
type Config struct {
	// Dir is the spaces' own folder: it holds the records and the namespaces, and the bridge's name derives from it.
	Dir string
	// Subnet is the subnet of tasks' addresses; default DefaultSubnet.
	Subnet netip.Prefix
	// Plugins are the folders with CNI's plugins; default the usual folders of distributions.
	Plugins []string
	Logger  *slog.Logger // default: discard
}

// ParseSubnet reads a subnet for tasks, such as "10.213.0.0/20".
func ParseSubnet(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil || !p.Addr().Is4():
		return netip.Prefix{}, fmt.Errorf("%q is not a subnet: want one of IPv4 such as %s", text, DefaultSubnet)
	case p.Masked() != p:
		return netip.Prefix{}, fmt.Errorf("%q is an address within a subnet: want %s", text, p.Masked())
	case p.Bits() < minBits || p.Bits() > maxBits:
		return netip.Prefix{}, fmt.Errorf("%q has a length of %d: want one from %d to %d", text, p.Bits(), minBits,
			maxBits)
	case !p.Addr().IsPrivate():
		return netip.Prefix{}, fmt.Errorf(
			"%q is not private: want a part of 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16", text)
	}
	return p, nil
}

// Task describes the network of an attempt.
type Task struct {
	UUID string
	Mode cluster.NetworkMode // bridge or none
	// Ports are the ports to publish, in the mode bridge.
	Ports []Port
}

// Port maps a number on the node to the number that the task's program listens on.
type Port struct {
	Node   int `json:"node"`
	Inside int `json:"inside"`
}

// Spaces are the network namespaces of a node's tasks. All methods may be called concurrently; calls of Join and Leave
// for one attempt run one at a time.
type Spaces struct {
	Config
	bridge  string // name of the bridge and of the table
	records *records
	filter  *filter
	plugins *plugins

	life         sync.RWMutex              // held for reading while the bridge must stay, for writing to remove it
	attemptLocks outlive.KeyedLock[string] // one for each attempt

	// Facts alone uses the remaining fields.
	kernelResult *string // what the kernel lacks, "" for nothing; nil until it was tested
	capable      bool    // the kernel accepted a table
}

// New returns the spaces of a node; it creates nothing.
func New(c Config) *Spaces {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if !c.Subnet.IsValid() {
		c.Subnet = netip.MustParsePrefix(DefaultSubnet)
	}
	if c.Plugins == nil {
		c.Plugins = []string{"/usr/lib/cni", "/usr/libexec/cni", "/opt/cni/bin"}
	}
	sum := sha256.Sum256([]byte(c.Dir))
	s := &Spaces{Config: c, bridge: "berth-" + hex.EncodeToString(sum[:4])}
	s.records = &records{dir: c.Dir, logger: c.Logger}
	run := tools{s.records}
	s.filter = &filter{
		bridge: s.bridge, gateway: c.Subnet.Addr().Next(), records: s.records, tools: run, logger: c.Logger,
	}
	s.plugins = &plugins{
		dir: c.Dir, subnet: c.Subnet, folders: c.Plugins, bridge: s.bridge, records: s.records, tools: run,
	}
	return s
}

// Join returns the path of the attempt's namespace, and creates the namespace if it does not exist. It may be called
// for each container of the attempt. Join and Leave clean up after a failed Join.
func (s *Spaces) Join(ctx context.Context, t Task) (string, error) {
	if err := s.records.opened(); err != nil {
		return "", err
	}
	unlock, err := s.attemptLocks.Lock(ctx, t.UUID)
	if err != nil {
		return "", err
	}
	defer unlock()
	s.life.RLock()
	defer s.life.RUnlock()
	space := s.records.spaceFile(t.UUID)
	r, known := s.records.get(t.UUID)
	if known && r.Made && isSpace(space) {
		return space, s.filter.publish(ctx) // repeat: it may have failed
	}
	if known { // unfinished, or from before a reboot
		if err := s.unmake(ctx, r); err != nil {
			return "", err
		}
	}
	if err := s.make(ctx, t); err != nil {
		return "", fmt.Errorf("network %s: %w", t.Mode, err)
	}
	return space, nil
}

// make creates the namespace and its connections. Each step is recorded before it can leave anything behind.
func (s *Spaces) make(ctx context.Context, t Task) error {
	r := record{UUID: t.UUID, Mode: t.Mode, Ports: t.Ports}
	if t.Mode == cluster.NetworkBridge {
		r.Subnet = s.Subnet.String()
	}
	if err := s.records.write(r); err != nil {
		return err
	}
	if err := makeSpace(s.records.spaceFile(t.UUID)); err != nil {
		return err
	}
	if t.Mode == cluster.NetworkBridge {
		if why := s.clash(); why != "" {
			return errors.New(why)
		}
		if err := os.WriteFile(s.markFile(), nil, 0o600); err != nil {
			return fmt.Errorf("note that there is a bridge: %w", err)
		}
		if err := makeBridge(s.bridge, s.Subnet); err != nil {
			return err
		}
		var err error
		if r.Address, err = s.plugins.attach(ctx, r); err != nil {
			return err
		}
		if err := localRoutes(s.bridge); err != nil {
			return err
		}
	}
	r.Made = true
	if err := s.records.write(r); err != nil {
		return err
	}
	return s.filter.publish(ctx)
}

// Leave removes the attempt's namespace and its connections. It does nothing if there is none. No program may run in it
// any more.
func (s *Spaces) Leave(ctx context.Context, uuid string) error {
	if err := s.records.opened(); err != nil {
		if _, gone := os.Stat(s.records.folder(uuid)); errors.Is(gone, os.ErrNotExist) {
			return nil // there was no network
		}
		return err
	}
	if err := s.leave(ctx, uuid); err != nil {
		return err
	}
	return s.settle(ctx)
}

func (s *Spaces) leave(ctx context.Context, uuid string) error {
	unlock, err := s.attemptLocks.Lock(ctx, uuid)
	if err != nil {
		return err
	}
	defer unlock()
	r, known := s.records.get(uuid)
	if !known {
		return nil
	}
	s.life.RLock()
	defer s.life.RUnlock()
	return s.unmake(ctx, r)
}

// unmake undoes make. It removes the record last.
func (s *Spaces) unmake(ctx context.Context, r record) error {
	if r.Made {
		r.Made = false
		if err := s.records.write(r); err != nil {
			return err
		}
	}
	if r.Mode != cluster.NetworkNone {
		if err := s.filter.publish(ctx); err != nil {
			return err
		}
		if err := s.plugins.detach(ctx, r); err != nil {
			return fmt.Errorf("leave the network %s: %w", r.Mode, err)
		}
	}
	if err := removeSpace(s.records.spaceFile(r.UUID)); err != nil {
		return err
	}
	return s.records.drop(r.UUID)
}

// Sweep removes networks without a known attempt, unless a program still runs in them, and repairs what other programs
// removed. It must be called after all attempts of earlier runs of the agent are known, and then regularly.
func (s *Spaces) Sweep(ctx context.Context, known func(uuid string) bool) error {
	if err := s.records.opened(); err != nil {
		return nil //nolint:nilerr // Facts reports it
	}
	var errs []error
	for _, r := range s.records.all() { // before known is called: an attempt is known before it joins
		if known(r.UUID) || inUse(s.records.spaceFile(r.UUID)) {
			continue
		}
		s.Logger.Info("a network is removed whose task is gone", "attempt", r.UUID, "mode", r.Mode)
		errs = append(errs, s.leave(ctx, r.UUID))
	}
	for _, uuid := range s.plugins.leases() {
		if _, ok := s.records.get(uuid); !ok && !known(uuid) {
			errs = append(errs, s.plugins.detach(ctx,
				record{UUID: uuid, Mode: cluster.NetworkBridge, Subnet: s.Subnet.String()}))
		}
	}
	if s.records.bridged() && !s.filter.published(ctx) {
		s.filter.forget()
		errs = append(errs, s.filter.publish(ctx))
	}
	return errors.Join(append(errs, s.settle(ctx))...)
}

// settle removes the bridge and the table once nothing uses them.
func (s *Spaces) settle(ctx context.Context) error {
	if s.records.bridged() {
		return nil
	}
	s.life.Lock()
	defer s.life.Unlock()
	if s.records.bridged() || s.records.settled() {
		return nil
	}
	if _, err := os.Stat(s.markFile()); err == nil {
		if err := s.filter.publish(ctx); err != nil {
			return err
		}
		if err := removeLink(s.bridge); err != nil {
			return err
		}
		if err := os.Remove(s.markFile()); err != nil {
			return fmt.Errorf("forget the bridge: %w", err)
		}
	}
	s.records.settle()
	return nil
}

// Close releases the resources of Facts. The namespaces stay.
func (s *Spaces) Close() error {
	err := s.records.close()
	s.filter.forget()
	return err
}

// markFile exists while a bridge or a table may exist.
func (s *Spaces) markFile() string { return filepath.Join(s.Dir, "bridged") }
