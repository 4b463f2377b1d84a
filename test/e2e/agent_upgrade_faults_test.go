//go:build prove

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/bootstrap"
	"github.com/berthd/berth/internal/ssh"
	"github.com/berthd/berth/internal/testkit"
)

// leavingGate ends the context of the upgrade, as the end of the command does.
type leavingGate struct {
	leave   context.CancelFunc
	session uint64
}

func (g *leavingGate) Begin(context.Context, string) (uint64, error) { return g.session, nil }

func (g *leavingGate) Pass(ctx context.Context, _ string) error {
	g.leave()
	return context.Cause(ctx)
}

// TestUpgradeThatNobodyConfirms ends an upgrade before its confirmation. The machine goes back by itself, also if its
// supervisor is killed, and tasks run on.
func TestUpgradeThatNobodyConfirms(t *testing.T) {
	t.Parallel()
	s := newUpgradeSite(t, 1)
	before, m := s.running(), s.machines[0]
	old := s.version(m)
	program, err := bootstrap.OpenProgram(s.newVersion("second"))
	if err != nil {
		t.Fatal(err)
	}
	auth := &ssh.Auth{Files: []string{s.key.File}}
	if err := auth.Load(); err != nil {
		t.Fatal(err)
	}
	n, err := s.Client().Node(t.Context(), "m1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	conn := ssh.New(ssh.Config{
		Target: ssh.Target{User: "root", Host: m.Address, Port: 22}, Auth: auth, Dial: m.Dial,
		Keys: &ssh.HostKeys{Pinned: []string{m.HostKey}},
	})
	c := bootstrap.UpgradeConfig{
		Config: bootstrap.Config{
			Control: fleetControl{s.machineSite}, Binary: oneProgram{program}, ReadyLimit: testkit.Scaled(time.Minute),
			Log: slog.New(slog.DiscardHandler),
		},
		Gate: &leavingGate{leave, n.Session}, Confirmation: testkit.Scaled(10 * time.Second),
	}
	r := bootstrap.Upgrade(ctx, c, bootstrap.Machine{Name: "m1", Conn: conn})
	if !errors.Is(r.Err, context.Canceled) || r.Step != bootstrap.StepGate {
		t.Fatalf("step %s: %v", r.Step, r.Err)
	}
	if got := s.version(m); got == old {
		t.Error("the machine went back at once")
	}
	m.Run("kill -KILL $(cat /run/berth-supervisor.pid); test -s /var/lib/berth-setup/upgrade.json")
	testkit.Eventually(t, time.Minute, func() error {
		if got := s.version(m); got != old {
			return fmt.Errorf("the machine runs %s", got)
		}
		v, err := s.Client().Node(t.Context(), "m1")
		if err == nil && (v.State != api.NodeReady || v.Session == n.Session) {
			err = fmt.Errorf("the node is %s with session %d", v.State, v.Session)
		}
		return err
	})
	m.Run("test ! -e /var/lib/berth-setup/upgrade.json")
	s.wantRunning(before)
	s.clear()
}
