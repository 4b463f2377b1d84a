package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/internal/apiserver"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/plain"
	"github.com/berthd/berth/internal/reverse"
	"github.com/berthd/berth/internal/ssh"
	"github.com/berthd/berth/internal/store"
)

// passiveNodes dials the nodes whose settings say so.
type passiveNodes struct {
	tables *store.Tables
	dialer *reverse.Dialer
	// listener has the connections that agents use.
	listener *apiserver.Listener
	auth     *ssh.Auth // nil without a key
	keys     *ssh.HostKeys
	dialed   map[string]dialedAt
}

// dialedAt is how a node is dialed.
type dialedAt struct {
	address string
	jump    string // the jump hosts, joined
	machine *ssh.Conn
}

// openPassiveNodes prepares the connections to passive nodes. A server without a certificate has none.
func (s *Server) openPassiveNodes(registry *prometheus.Registry) error {
	if s.keeper == nil || s.settings == nil || s.settings.API == "" {
		return nil
	}
	p := &passiveNodes{
		tables: s.tables, dialer: reverse.NewDialer(s.settings.API, s.Config.Log), dialed: map[string]dialedAt{},
	}
	if access := s.Config.Machines; len(access.Identities) > 0 {
		p.auth = &ssh.Auth{Files: access.Identities}
		if err := p.auth.Load(); err != nil {
			return err
		}
		p.keys = &ssh.HostKeys{Files: access.KnownHosts}
		if home, err := os.UserHomeDir(); len(p.keys.Files) == 0 && err == nil {
			p.keys.Files = ssh.DefaultKnownHosts(home)
		}
	}
	p.listener = apiserver.ListenForAgents(p.dialer, s.keeper)
	registry.MustRegister(
		passiveGauge("reached", func() int { reached, _ := p.dialer.Reached(); return reached }),
		passiveGauge("unreached", func() int { _, unreached := p.dialer.Reached(); return unreached }))
	s.passive = p
	s.parts = append(s.parts, part{"the connections to passive nodes", p.run})
	return nil
}

func passiveGauge(state string, count func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "berth", Name: "passive_nodes", ConstLabels: prometheus.Labels{"state": state},
		Help: "Passive nodes, by whether this server reached them last.",
	}, func() float64 { return float64(count()) })
}

// run follows the settings of the nodes until the context ends.
func (p *passiveNodes) run(ctx context.Context) error {
	follow := p.tables.Follow(store.TopicNodes)
	defer follow.Close()
	defer func() {
		_ = p.dialer.Close()
		for node := range p.dialed { // order-free: all are dropped
			p.drop(node)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-follow.Wake():
		}
		snap, changes := p.tables.Snapshot(), follow.Take()
		if changes.Resync {
			for host := range snap.Hosts() {
				p.update(host.Value.Name, host.Value)
			}
			for node := range p.dialed { // order-free: nodes are independent
				changes.Nodes[node] = true
			}
		}
		for node := range changes.Nodes { // order-free: nodes are independent
			host, _ := snap.Host(node)
			p.update(node, host.Value)
		}
	}
}

// update dials a node as its settings say; host is nil for a node without any.
func (p *passiveNodes) update(node string, host *cluster.Host) {
	var next dialedAt
	if host != nil && host.Dial != "" && !host.Gone && host.Released == 0 {
		next.address = host.Dial
		if host.Setup != nil {
			next.jump = strings.Join(host.Setup.Jump, " ")
		}
	}
	was := p.dialed[node]
	if was.address == next.address && was.jump == next.jump {
		return
	}
	p.drop(node)
	if next.address == "" {
		return
	}
	open, machine := p.openerOf(next)
	next.machine = machine
	p.dialed[node] = next
	p.dialer.Keep(node, open)
}

// drop ends the connections to a node that its agent does not use. Those over SSH end all.
func (p *passiveNodes) drop(node string) {
	p.dialer.Drop(node)
	if machine := p.dialed[node].machine; machine != nil {
		machine.Close()
	}
	delete(p.dialed, node)
}

// openerOf returns the function that opens a connection to a node, and the machine that it goes through, if any.
func (p *passiveNodes) openerOf(at dialedAt) (reverse.Open, *ssh.Conn) {
	fail := func(err error) (reverse.Open, *ssh.Conn) {
		return func(context.Context) (net.Conn, error) { return nil, err }, nil
	}
	address, err := cluster.ParseDialAddress(at.address)
	if err != nil {
		return fail(err)
	}
	if address.TCP != "" {
		dialer := net.Dialer{KeepAliveConfig: reverse.KeepAlive()}
		return func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", address.TCP) }, nil
	}
	if p.auth == nil {
		return fail(errors.New("this server has no key for SSH: start it with --ssh-identity"))
	}
	machine, err := p.machine(address.SSH, strings.Fields(at.jump))
	if err != nil {
		return fail(err)
	}
	loopback := net.JoinHostPort("127.0.0.1", strconv.Itoa(cluster.PassivePort))
	return func(ctx context.Context) (net.Conn, error) { return machine.Dial(ctx, "tcp", loopback) }, machine
}

// machine returns the connection to a machine, which is not open yet.
func (p *passiveNodes) machine(target string, jump []string) (*ssh.Conn, error) {
	config := ssh.Config{Auth: p.auth, Keys: p.keys}
	var err error
	if config.Target, err = ssh.ParseTarget(target, "root"); err != nil {
		return nil, err
	}
	for _, j := range jump {
		t, err := ssh.ParseTarget(j, "root")
		if err != nil {
			return nil, fmt.Errorf("the jump host: %w", err)
		}
		config.Jump = append(config.Jump, t)
	}
	return ssh.New(config), nil
}

// problem returns why a node is not reached; "" if it is, or is not dialed.
func (p *passiveNodes) problem(node string) string {
	if err := p.dialer.Problem(node); err != nil {
		return plain.Text(err)
	}
	return ""
}
