//go:build prove

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/test/harness"
)

// kill ends the process of the node and the server of the fleet, lets a test change the journal of the node, and starts
// both again.
func (m *movable) kill(edit func(journal map[string]any)) {
	m.t.Helper()
	m.node.Kill()
	m.fleet.Servers[0].Kill()
	if edit != nil {
		path := filepath.Join(m.AgentDir, "owner.json")
		text, err := os.ReadFile(path)
		journal := map[string]any{}
		if err == nil {
			err = json.Unmarshal(text, &journal)
		}
		if err == nil {
			edit(journal)
			text, err = json.Marshal(journal)
		}
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
	m.fleet.Servers[0].Start()
	m.node = m.StartStandalone()
	m.Eventually(soon, func() error {
		_, err := m.host.Handover(m.t.Context())
		return err
	})
}

// The node's process and the server of the fleet are killed after each step of a move, and the command as well: the
// test takes the first steps in its place. The same command then completes the move, or the process itself does. No
// task notices anything, on the way to the fleet and back.
func TestKillsDuringTheMoveOfANode(t *testing.T) {
	t.Parallel()
	m, before := newMovable(t, harness.Process)
	ctx := t.Context()
	var objects api.NodeObjects
	prepare := func() {
		var err error
		objects, err = m.host.HandoverObjects(ctx)
		m.must(err)
		m.must(m.host.PrepareHandover(ctx,
			api.HostPrepareRequest{Servers: m.fleet.URLs(), JoinToken: m.joinToken()}))
	}
	adopt := func() {
		prepare()
		_, err := m.fleet.Client().AdoptNode(ctx, api.NodeAdoptRequest{Objects: objects})
		m.must(err)
	}
	releasing := func(journal map[string]any) {
		journal["phase"], journal["revisions"] = api.HandoverReleasing, objects.Revisions
	}
	show := func() {
		reply, err := m.fleet.Client().ReleaseNode(ctx, harness.NodeName, api.NodeReleaseRequest{DryRun: true})
		m.must(err)
		objects = reply.Objects
		m.must(m.host.PrepareHandover(ctx, api.HostPrepareRequest{Objects: &objects}))
	}
	adopted := func() {
		show()
		m.Eventually(soon, func() error {
			s, err := m.host.Handover(ctx)
			if err == nil && !s.Adopted {
				err = fmt.Errorf("it has not adopted: %s", s.Problem)
			}
			return err
		})
	}
	released := func() {
		adopted()
		_, err := m.fleet.Client().ReleaseNode(ctx, harness.NodeName,
			api.NodeReleaseRequest{Revisions: objects.Revisions})
		m.must(err)
	}
	for _, step := range []struct {
		name, verb string
		do         func()
		edit       func(map[string]any)
		alone      api.HandoverPhase // that the process reaches by itself
	}{
		{"prepared", "adopt", prepare, nil, api.HandoverPrepared},
		{"", "release", nil, nil, ""},
		{"adopted", "adopt", adopt, nil, api.HandoverPrepared},
		{"returning", "release", show, nil, api.HandoverReturning},
		{"releasing", "adopt", adopt, releasing, api.HandoverServers},
		{"adopted back", "release", adopted, nil, api.HandoverReturning},
		{"released", "adopt", func() {
			adopt()
			_, err := m.Client().ReleaseNode(ctx, harness.NodeName,
				api.NodeReleaseRequest{Revisions: objects.Revisions})
			m.must(err)
		}, releasing, api.HandoverServers},
		{"released back", "release", released, nil, api.HandoverReturning},
		{"gone", "adopt", func() {
			adopt()
			m.must(m.host.CompleteHandover(ctx, api.HostCompleteRequest{Revisions: objects.Revisions}))
		}, nil, api.HandoverServers},
		{"back", "release", func() {
			released()
			m.must(m.host.CompleteHandover(ctx, api.HostCompleteRequest{}))
		}, nil, api.HandoverOwn},
		{"", "adopt", nil, nil, ""}, // the fleet deletes the tasks at the end of the test
	} {
		m.settled(step.verb)
		if step.do != nil {
			step.do()
			m.kill(step.edit)
			m.phase(step.alone)
		}
		r := m.move(step.verb)
		if r.Want(t, 0, "done: "); t.Failed() {
			t.Fatalf("after the step %q", step.name)
		}
		owner := m.Site
		if step.verb == "adopt" {
			owner = m.fleet.Site
		}
		m.same(before, running(t, owner, "hello", 2))
	}
}
