// Package network makes the networks of those tasks that do not see their node's: a network namespace for each attempt,
// which all of its containers share. In the mode none there is nothing in it but a loopback; in the mode bridge it
// hangs on a bridge of the node by CNI's plugins, leads out by the node's address, and the ports of the task are
// published: a number on the node leads to the number that the program listens on.
//
// A namespace lives from the first container of its attempt until the attempt is cleared, over restarts of containers
// and of the agent. It is kept by a mount, of which a record beside it tells; what is published is one table of the
// packet filter, which is written anew as a whole from the records. So whatever moment the agent dies at, the next one
// finds the records, goes on from there, and removes what is half made or belongs to nobody. The programs that it calls
// hold a lock, which the next agent waits for: none of them works on unseen.
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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor/outlive"
)

// DefaultSubnet is what the addresses of tasks are of, unless a node is told otherwise. Nodes may share it: it leads
// nowhere beyond a node.
const DefaultSubnet = "10.213.0.0/20"

// Bounds of a subnet's length: from 5 tasks up to more than a node can hold.
const (
	minBits = 8
	maxBits = 29
)

// toolTimeout bounds one call of a plugin or of nft.
const toolTimeout = 30 * time.Second

// Config is what Spaces need.
type Config struct {
	// Dir is theirs alone: it holds the records and the namespaces, and names the node's bridge.
	Dir string
	// Subnet is what the addresses of tasks are of; default DefaultSubnet.
	Subnet netip.Prefix
	// Plugins are the folders where CNI's plugins are looked for; default those where distributions and others put
	// them.
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

// Task says what network an attempt asks for.
type Task struct {
	UUID string
	Mode cluster.NetworkMode // bridge or none
	// Ports are published, in the mode bridge.
	Ports []Port
}

// Port leads from a number on the node to the number that the task's program listens on.
type Port struct {
	Node   int `json:"node"`
	Inside int `json:"inside"`
}

// Spaces are the namespaces of a node's tasks. All methods may be called concurrently; Join and Leave of one attempt
// wait for each other.
type Spaces struct {
	Config
	bridge string // the name of the bridge and of the table

	life  sync.RWMutex              // held for reading while the bridge must stay, for writing to remove it
	turns outlive.KeyedLock[string] // of the attempts

	mu      sync.Mutex
	lock    *os.File // nil until they are open
	proof   *string  // what the kernel lacks, "" for nothing; nil until it was tried
	records map[string]record

	rules   sync.Mutex // held while the table is written
	applied string     // what was last written
	// named says that the agent answers for names, instead who does where it does not; appliedNames is what was last
	// written of it. Of rules.
	named        bool
	instead      netip.AddrPort
	appliedNames string

	capable bool // of Facts alone: the kernel took a table
	settled bool // of mu: the table and the bridge are as the records have it
}

// New returns the spaces of a node; it makes nothing.
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
	return &Spaces{Config: c, bridge: "berth-" + hex.EncodeToString(sum[:4])}
}

// Join returns the path of the attempt's namespace, which it makes unless it stands. It may be called again for each
// container of the attempt. What a failed Join left behind, Join and Leave deal with.
func (s *Spaces) Join(ctx context.Context, t Task) (string, error) {
	if err := s.opened(); err != nil {
		return "", err
	}
	unlock, err := s.turns.Lock(ctx, t.UUID)
	if err != nil {
		return "", err
	}
	defer unlock()
	s.life.RLock()
	defer s.life.RUnlock()
	space := s.spaceFile(t.UUID)
	r, known := s.record(t.UUID)
	if known && r.Made && isSpace(space) {
		return space, s.publish(ctx) // again, in case that it failed
	}
	if known { // half made, or from before the machine was started anew
		if err := s.unmake(ctx, r); err != nil {
			return "", err
		}
	}
	if err := s.make(ctx, t); err != nil {
		return "", fmt.Errorf("network %s: %w", t.Mode, err)
	}
	return space, nil
}

// make makes the namespace and all that leads there. Each step is written down before it can leave something behind.
func (s *Spaces) make(ctx context.Context, t Task) error {
	r := record{UUID: t.UUID, Mode: t.Mode, Ports: t.Ports}
	if t.Mode == cluster.NetworkBridge {
		r.Subnet = s.Subnet.String()
	}
	if err := s.write(r); err != nil {
		return err
	}
	if err := makeSpace(s.spaceFile(t.UUID)); err != nil {
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
		if r.Address, err = s.attach(ctx, r); err != nil {
			return err
		}
		if err := localRoutes(s.bridge); err != nil {
			return err
		}
	}
	r.Made = true
	if err := s.write(r); err != nil {
		return err
	}
	return s.publish(ctx)
}

// Leave removes the attempt's namespace and all that leads there. Where there is none it does nothing. Nothing may run
// in it any more.
func (s *Spaces) Leave(ctx context.Context, uuid string) error {
	if err := s.opened(); err != nil {
		if _, gone := os.Stat(s.folder(uuid)); errors.Is(gone, os.ErrNotExist) {
			return nil // it never had one
		}
		return err
	}
	if err := s.leave(ctx, uuid); err != nil {
		return err
	}
	return s.settle(ctx)
}

func (s *Spaces) leave(ctx context.Context, uuid string) error {
	unlock, err := s.turns.Lock(ctx, uuid)
	if err != nil {
		return err
	}
	defer unlock()
	r, known := s.record(uuid)
	if !known {
		return nil
	}
	s.life.RLock()
	defer s.life.RUnlock()
	return s.unmake(ctx, r)
}

// unmake undoes make. The record goes last.
func (s *Spaces) unmake(ctx context.Context, r record) error {
	if r.Made {
		r.Made = false
		if err := s.write(r); err != nil {
			return err
		}
	}
	if r.Mode != cluster.NetworkNone {
		if err := s.publish(ctx); err != nil {
			return err
		}
		if err := s.detach(ctx, r); err != nil {
			return fmt.Errorf("leave the network %s: %w", r.Mode, err)
		}
	}
	if err := removeSpace(s.spaceFile(r.UUID)); err != nil {
		return err
	}
	return s.drop(r.UUID)
}

// Sweep removes what belongs to no attempt that is known, unless a program still runs in it, and mends what others took
// away. It is to be called after all attempts are known that an earlier life of the agent wrote, and now and then.
func (s *Spaces) Sweep(ctx context.Context, known func(uuid string) bool) error {
	if err := s.opened(); err != nil {
		return nil //nolint:nilerr // Facts says so
	}
	var errs []error
	for _, r := range s.all() { // before known is asked: an attempt is known before it joins
		if known(r.UUID) || inUse(s.spaceFile(r.UUID)) {
			continue
		}
		s.Logger.Info("a network is removed whose task is gone", "attempt", r.UUID, "mode", r.Mode)
		errs = append(errs, s.leave(ctx, r.UUID))
	}
	for _, uuid := range s.leases() {
		if _, ok := s.record(uuid); !ok && !known(uuid) {
			errs = append(errs, s.detach(ctx,
				record{UUID: uuid, Mode: cluster.NetworkBridge, Subnet: s.Subnet.String()}))
		}
	}
	if s.bridged() && !s.published(ctx) {
		s.rules.Lock()
		s.applied, s.appliedNames = "", ""
		s.rules.Unlock()
		errs = append(errs, s.publish(ctx))
	}
	return errors.Join(append(errs, s.settle(ctx))...)
}

// settle removes the bridge and the table once nobody uses them.
func (s *Spaces) settle(ctx context.Context) error {
	if s.bridged() {
		return nil
	}
	s.life.Lock()
	defer s.life.Unlock()
	if s.bridged() || s.settled {
		return nil
	}
	if _, err := os.Stat(s.markFile()); err == nil {
		if err := s.publish(ctx); err != nil {
			return err
		}
		if err := removeLink(s.bridge); err != nil {
			return err
		}
		if err := os.Remove(s.markFile()); err != nil {
			return fmt.Errorf("forget the bridge: %w", err)
		}
	}
	s.settled = true
	return nil
}

// Close lets go of what Facts opened. The namespaces stay.
func (s *Spaces) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil {
		return nil
	}
	err := s.lock.Close()
	s.lock, s.records, s.applied, s.appliedNames, s.settled = nil, nil, "", "", false
	return err
}

func (s *Spaces) folder(uuid string) string { return filepath.Join(s.Dir, "tasks", uuid) }

// markFile is there while a bridge or a table may be.
func (s *Spaces) markFile() string { return filepath.Join(s.Dir, "bridged") }

func (s *Spaces) spaceFile(uuid string) string { return filepath.Join(s.folder(uuid), "ns") }

// all returns the records in order.
func (s *Spaces) all() []record {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]record, 0, len(s.records))
	for _, r := range s.records { // order-free: sorted next
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b record) int { return strings.Compare(a.UUID, b.UUID) })
	return list
}

// bridged reports whether an attempt has, or may have, something on the bridge.
func (s *Spaces) bridged() bool {
	return slices.ContainsFunc(s.all(), func(r record) bool { return r.Mode != cluster.NetworkNone })
}
