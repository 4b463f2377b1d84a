package network_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/agent/network"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/netlab"
)

// Tasks' DNS questions at the gateway reach the program that listens there, the agent. Without one they reach the other
// machine, immediately and without any call. They never reach a task that published the port. All rules go with the
// last task.
func TestQuestionsForNames(t *testing.T) {
	needCNI(t)
	t.Parallel()
	lab := netlab.New(t)
	machine, other := lab.Add("node"), lab.Add("other")
	n := newNode(t, machine)
	before := n.content()
	gateway, tasks := n.Gateway()
	at := netip.AddrPortFrom(gateway, 53).String()
	if n.Bridged() || tasks.String() != network.DefaultSubnet {
		t.Errorf("without a task: bridged %v, tasks of %s", n.Bridged(), tasks)
	}
	upstream := netip.AddrPortFrom(netip.MustParseAddr(other.Address), 53)
	answer := func(instead netip.AddrPort) {
		n.do(func(ctx context.Context) error { return n.AnswerNames(ctx, instead) })
	}
	answer(upstream)
	if now := n.content(); now != before {
		t.Errorf("without a task the node has\n%s", now)
	}
	asker := n.join(one, cluster.NetworkBridge)
	thief := n.join(two, cluster.NetworkBridge, network.Port{Node: 53, Inside: 53})
	serve(t, thief, ":53", "thief")
	serve(t, spaceOf(other), ":53", "upstream")
	want := func(when, want string) {
		t.Helper()
		testkit.Eventually(t, soon, func() error {
			got, err := ask(asker, at)
			if want == "" {
				if err == nil {
					return fmt.Errorf("%s: got %q, want no answer", when, got)
				}
				return nil
			}
			if err != nil || !strings.HasPrefix(got, want) {
				return fmt.Errorf("%s: got %q, %w, want %s", when, got, err, want)
			}
			return nil
		})
	}
	want("nothing listens", "upstream "+machine.Address)
	var agent net.Listener
	n.do(func(context.Context) (err error) {
		agent, err = net.Listen("tcp4", at)
		return err
	})
	go func() {
		for {
			c, err := agent.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(c, "agent %s", c.RemoteAddr())
			_ = c.Close()
		}
	}()
	want("the agent listens", "agent 10.213.0.2:")
	_ = agent.Close()
	want("the agent is gone", "upstream ")
	if got, err := ask(spaceOf(other), machine.Address+":53"); err != nil || !strings.HasPrefix(got, "thief ") {
		t.Errorf("the published number from another machine: %q, %v", got, err)
	}
	answer(netip.MustParseAddrPort("127.0.0.1:53"))
	want("without another resolver", "")
	content := n.content()
	n.reopen()
	answer(netip.AddrPort{})
	if now := n.content(); now != content {
		t.Errorf("after a restart the node has\n%s\nwant\n%s", now, content)
	}
	answer(upstream)
	want("in the agent's next life", "upstream ")
	n.leave(one)
	n.leave(two)
	n.wantAsBefore(before)
}
