package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/host"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/version"
	"github.com/berthd/berth/internal/wording"
)

const (
	// moveTimeout is how long the command waits for the next owner to have all tasks.
	moveTimeout = 2 * time.Minute
	// movePoll is the time between two looks at the node and its next owner.
	movePoll = 200 * time.Millisecond
	// joinLife is how long the node has to use its join token.
	joinLife = 10 * time.Minute
)

// move is `berth node adopt` or `berth node release`.
type move struct {
	*session.Session
	socket, domain string
	dryRun, cancel bool

	name  string
	path  string // of the socket
	fleet *client.Client
	node  *client.Host
	began time.Time
}

func (m *move) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.socket, "socket", "",
		"unix socket of the API of the node (BERTH_HOST_SOCKET; default "+datadir.DefaultHostSocketText+")")
	cmd.Flags().BoolVar(&m.dryRun, "dry-run", false, "show what would move and what is in the way, and change nothing")
	cmd.Flags().BoolVar(&m.cancel, "cancel", false, "end a move that was begun, before its owner released the node")
}

func newNodeAdoptCommand(sess *session.Session) *cobra.Command {
	m := &move{Session: sess}
	cmd := &cobra.Command{
		Use: "adopt NODE", Short: "Give a standalone node to these servers; its tasks run on",
		Long: "Moves a node that drives itself (berth standalone) to the servers of the current context. Its tasks\n" +
			"keep their processes. Its services, crons and endpoints become objects of the servers, bound to the\n" +
			"node. Run it on the machine of the node, as root or the user of its process, with a context of the\n" +
			"servers: --context FLEET.\n\n" +
			"All conflicts are printed before anything changes. After an interruption, run the same command again.",
		Args: session.Arguments(1, 1, "the name of the node"), RunE: m.run(m.adopt),
		// The servers do not know the node yet.
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	m.addFlags(cmd)
	cmd.Flags().StringVar(&m.domain, "domain", cluster.DefaultDomain, "the `domain` of the servers for the node")
	session.RegisterCompletion(cmd, "domain", sess.CompleteNames(wording.KindDomain))
	return cmd
}

func newNodeReleaseCommand(sess *session.Session) *cobra.Command {
	m := &move{Session: sess}
	cmd := &cobra.Command{
		Use: "release NODE", Short: "Let a node drive itself again; its tasks run on",
		Long: "Moves a node that 'berth standalone' runs from the servers of the current context to a server of its\n" +
			"own. Its tasks keep their processes. The services, crons and endpoints whose tasks run on this node\n" +
			"alone move with it. Run it on the machine of the node, as root or the user of its process, with a\n" +
			"context of the servers: --context FLEET.\n\n" +
			"All conflicts are printed before anything changes. After an interruption, run the same command again.",
		Args:              session.Arguments(1, 1, "the name of the node"),
		ValidArgsFunction: sess.CompleteNames(wording.KindNode), RunE: m.run(m.release),
	}
	m.addFlags(cmd)
	return cmd
}

// run connects to both sides and does the move.
func (m *move) run(do func(context.Context, api.HostHandover) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		m.path = strings.TrimPrefix(
			cmp.Or(m.socket, m.Env("BERTH_HOST_SOCKET"), datadir.DefaultHostSocket()), "unix://")
		var err error
		if m.fleet, err = m.Connect(); err != nil {
			return err
		}
		config := client.Config{Addr: "unix://" + m.path, Agent: "berth/" + version.String()}
		if m.node, err = client.NewHost(config); err != nil {
			return &session.UsageError{Command: cmd.CommandPath(), Message: err.Error()}
		}
		defer m.node.Close()
		ctx := cmd.Context()
		m.name, m.began = args[0], m.Now()
		state, err := m.node.Handover(ctx)
		if err != nil {
			return host.Explain(err, m.path)
		}
		if state.Node != m.name {
			return fmt.Errorf("the node of this machine is %s, not %s: run the command on the machine of the node",
				state.Node, m.name)
		}
		if m.cancel {
			return m.end(ctx, state)
		}
		return do(ctx, state)
	}
}

// stepf prints the end of a step with the time that it took.
func (m *move) stepf(format string, args ...any) {
	took := m.Now().Sub(m.began).Round(10 * time.Millisecond)
	m.began = m.Now()
	m.Printf("%s (%s)\n", fmt.Sprintf(format, args...), took)
}

// contents describes what moves.
func contents(o *api.NodeObjects) string {
	parts := []string{wording.Count(o.Tasks, "task"), wording.Count(len(o.Services), "service")}
	if n := len(o.Crons); n > 0 {
		parts = append(parts, wording.Count(n, "cron"))
	}
	if n := len(o.Endpoints); n > 0 {
		parts = append(parts, wording.Count(n, "endpoint"))
	}
	return strings.Join(parts, ", ")
}

// show prints what moves and what stays.
func (m *move) show(o *api.NodeObjects) {
	m.stepf("checked: %s can move", contents(o))
	for _, text := range o.Stays {
		m.Printf("  stays: %s\n", text)
	}
}

// errConflicts is the error of a move with conflicts on both sides, or on one.
func errConflicts(all ...error) error {
	if err := errors.Join(all...); err != nil {
		return &hinted.Error{Err: err, Hint: "Nothing was changed."}
	}
	return nil
}

// adopt moves the node to the servers.
func (m *move) adopt(ctx context.Context, state api.HostHandover) error {
	switch state.Phase {
	case api.HandoverOwn, api.HandoverPrepared:
	case api.HandoverReleasing, api.HandoverServers:
		m.stepf("the node is with %s since %s", strings.Join(state.Servers, ", "), state.Since.Format(time.RFC3339))
		return m.arrive(ctx)
	default:
		return fmt.Errorf("node %s is on its way back to its own server: `berth node release %s` continues it, with "+
			"--cancel it ends it", m.name, m.name)
	}
	objects, objectsErr := m.node.HandoverObjects(ctx)
	request := api.NodeAdoptRequest{Domain: m.domain, DryRun: true, Objects: objects}
	request.Objects.Node = m.name
	_, adoptErr := m.fleet.AdoptNode(ctx, request)
	servers, serversErr := m.servers(ctx)
	if err := errConflicts(objectsErr, adoptErr, serversErr); err != nil {
		return err
	}
	m.show(&objects)
	if m.dryRun {
		return nil
	}
	token, err := m.fleet.CreateToken(ctx, api.TokenRequest{
		Name: "node adopt " + m.name, Purpose: api.TokenJoin, Role: api.RoleNode, For: m.name,
		Life: api.Duration(joinLife),
	})
	if err != nil {
		return err
	}
	preparation := api.HostPrepareRequest{Servers: servers, JoinToken: token.Token}
	if err := host.Explain(m.node.PrepareHandover(ctx, preparation), m.path); err != nil {
		return err
	}
	m.stepf("prepared: the node has a certificate of %s", strings.Join(servers, ", "))
	request.DryRun = false
	if _, err := m.fleet.AdoptNode(ctx, request); err != nil {
		return err
	}
	m.stepf("adopted: the domain %s has the objects", m.domain)
	if err := m.step(ctx, func(ctx context.Context) error {
		return m.node.CompleteHandover(ctx, api.HostCompleteRequest{Revisions: objects.Revisions})
	}); err != nil {
		return err
	}
	m.stepf("released: the node goes to the servers")
	return m.arrive(ctx)
}

// servers returns the addresses at which the node will reach the servers.
func (m *move) servers(ctx context.Context) (all []string, err error) {
	views, _, err := client.All(ctx, client.ListOptions{}, m.fleet.Servers)
	if err != nil {
		return nil, err
	}
	for i := range views {
		if views[i].API != "" {
			all = append(all, views[i].API)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the servers of the current context serve their own machine only, so no node can join " +
			"them: choose the context of a fleet with --context, or create its server with `berth server init`")
	}
	slices.Sort(all)
	return all, nil
}

// release moves the node to a server of its own.
func (m *move) release(ctx context.Context, state api.HostHandover) error {
	switch state.Phase {
	case api.HandoverServers, api.HandoverReturning:
	case api.HandoverOwn:
		return m.awaitOwn(ctx)
	default:
		return fmt.Errorf("node %s is on its way to other servers: `berth node adopt %s` continues it, with --cancel "+
			"it ends it", m.name, m.name)
	}
	reply, err := m.fleet.ReleaseNode(ctx, m.name, api.NodeReleaseRequest{DryRun: true})
	if err != nil {
		return errConflicts(err)
	}
	if !reply.Released {
		m.show(&reply.Objects)
		if m.dryRun {
			return nil
		}
		if state, err = m.prepareReturn(ctx, state, reply.Objects); err != nil {
			return err
		}
	}
	if state.Phase == api.HandoverServers {
		return &hinted.Error{
			Err: fmt.Errorf("the servers have released node %s, and the node has not prepared its return", m.name),
			Hint: "They are not the servers of the node, or its data directory was replaced. Give the node to " +
				"servers again with 'berth node adopt'.",
		}
	}
	if !reply.Released {
		if _, err := m.fleet.ReleaseNode(ctx, m.name,
			api.NodeReleaseRequest{Revisions: reply.Objects.Revisions}); err != nil {
			return err
		}
	}
	m.stepf("released: the servers send the node nothing any more")
	if err := m.awaitNode(ctx, "its own server has the objects",
		func(s *api.HostHandover) bool { return s.Adopted }); err != nil {
		return err
	}
	if err := m.step(ctx, func(ctx context.Context) error {
		return m.node.CompleteHandover(ctx, api.HostCompleteRequest{})
	}); err != nil {
		return err
	}
	if err := m.awaitNode(ctx, "it drives itself", func(s *api.HostHandover) bool {
		return s.Phase == api.HandoverOwn
	}); err != nil {
		return err
	}
	return m.awaitOwn(ctx)
}

// prepareReturn lets the node's own server adopt the objects. A preparation with other objects begins anew.
func (m *move) prepareReturn(ctx context.Context, state api.HostHandover, objects api.NodeObjects) (api.HostHandover,
	error,
) {
	if state.Phase == api.HandoverReturning {
		if err := m.step(ctx, m.node.CancelHandover); err != nil {
			return state, err
		}
		if err := m.awaitNode(ctx, "the earlier preparation has ended",
			func(s *api.HostHandover) bool { return s.Phase == api.HandoverServers }); err != nil {
			return state, err
		}
	}
	if err := m.step(ctx, func(ctx context.Context) error {
		return m.node.PrepareHandover(ctx, api.HostPrepareRequest{Objects: &objects})
	}); err != nil {
		return state, err
	}
	err := m.awaitNode(ctx, "its own server has the objects", func(s *api.HostHandover) bool {
		state = *s
		return s.Adopted
	})
	if err == nil {
		m.stepf("prepared: the node's own server has the objects")
	}
	return state, err
}

// end ends a move that was begun.
func (m *move) end(ctx context.Context, state api.HostHandover) error {
	switch state.Phase {
	case api.HandoverOwn, api.HandoverServers:
		m.stepf("no move of node %s is in progress", m.name)
		return nil
	case api.HandoverReturning:
		reply, err := m.fleet.ReleaseNode(ctx, m.name, api.NodeReleaseRequest{DryRun: true})
		if err == nil && reply.Released {
			err = fmt.Errorf("the servers have released node %s already: `berth node release %s` completes the move",
				m.name, m.name)
		}
		if err != nil && client.StatusOf(err) != http.StatusConflict {
			return err
		}
	case api.HandoverPrepared: // the servers may have the objects
		reply, err := m.fleet.ReleaseNode(ctx, m.name, api.NodeReleaseRequest{DryRun: true})
		if err == nil && !reply.Released {
			_, err = m.fleet.ReleaseNode(ctx, m.name, api.NodeReleaseRequest{Revisions: reply.Objects.Revisions})
		}
		if err != nil && client.StatusOf(err) != http.StatusNotFound {
			return err
		}
	}
	if err := m.step(ctx, m.node.CancelHandover); err != nil {
		return err
	}
	m.stepf("the move of node %s has ended; its owner is the same as before", m.name)
	return nil
}

// awaitNode waits until the node shows what done looks for. The node does not answer while its process begins for
// another owner.
func (m *move) awaitNode(ctx context.Context, what string, done func(*api.HostHandover) bool) error {
	return m.await(ctx, fmt.Sprintf("node %s does not show that %s", m.name, what), func(ctx context.Context) error {
		s, err := m.node.Handover(ctx)
		switch {
		case err != nil:
			return err
		case done(&s):
			return nil
		}
		return errors.New(cmp.Or(s.Problem, "it is in the phase "+string(s.Phase)))
	})
}

// arrive waits until the servers have the node and all of its tasks.
func (m *move) arrive(ctx context.Context) error {
	if err := m.awaitNode(ctx, "the servers drive it", func(s *api.HostHandover) bool {
		return s.Phase == api.HandoverServers
	}); err != nil {
		return err
	}
	tasks := 0
	err := m.await(ctx, "the servers do not have all tasks of node "+m.name, func(ctx context.Context) error {
		n, err := m.fleet.Node(ctx, m.name)
		if err != nil {
			return err
		}
		if n.State != api.NodeReady {
			return fmt.Errorf("the node is %s: %s", n.State, n.Reason)
		}
		tasks, err = m.compare(ctx)
		return err
	})
	if err != nil {
		return err
	}
	m.stepf("done: the node is ready in the domain %s, and %s ran on", m.domain, wording.Count(tasks, "task"))
	return nil
}

// compare returns an error unless the servers have the attempts that the node runs.
func (m *move) compare(ctx context.Context) (tasks int, err error) {
	state, err := m.node.State(ctx)
	if err != nil {
		return 0, err
	}
	views, _, err := client.All(ctx, client.ListOptions{}, func(ctx context.Context, o client.ListOptions) (
		api.Page[api.TaskView], error,
	) {
		return m.fleet.Tasks(ctx, client.TaskFilter{Node: m.name}, o)
	})
	if err != nil {
		return 0, err
	}
	known := map[string]bool{}
	for i := range views {
		known[views[i].UUID] = !views[i].State.Terminal()
	}
	for i := range state.Tasks {
		t := &state.Tasks[i]
		if t.UUID == "" || api.State(t.State).Terminal() || t.State == api.HostStopped {
			continue
		}
		if !known[t.UUID] {
			return 0, fmt.Errorf("%s is not there yet", t.ID)
		}
		tasks++
	}
	return tasks, nil
}

// awaitOwn waits until the node's API changes tasks again, which it does once its own server serves.
func (m *move) awaitOwn(ctx context.Context) error {
	err := m.await(ctx, "node "+m.name+" does not drive itself", func(ctx context.Context) error {
		state, err := m.node.State(ctx)
		if err == nil && (!state.Owner.DrivesItself || state.Owner.Generation == 0 || state.Owner.Answered.IsZero()) {
			err = errors.New("its own server has not met its agent")
		}
		return err
	})
	if err == nil {
		m.stepf("done: node %s drives itself", m.name)
	}
	return err
}

// step takes a step at the node until the node answers. The process may begin for another owner before the answer has
// left it, and a repeated step changes nothing.
func (m *move) step(ctx context.Context, do func(context.Context) error) error {
	var refusal error
	err := m.await(ctx, "node "+m.name+" does not answer", func(ctx context.Context) error {
		err := do(ctx)
		if client.StatusOf(err) != 0 {
			refusal, err = err, nil
		}
		return host.Explain(err, m.path)
	})
	return cmp.Or(refusal, err)
}

// await repeats a check until it succeeds.
func (m *move) await(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return &hinted.Error{
				Err:  fmt.Errorf("%s: %w", what, err),
				Hint: "The tasks run on. Run the same command again to continue.",
			}
		case <-time.After(movePoll):
		}
	}
}
