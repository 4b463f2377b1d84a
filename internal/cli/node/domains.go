package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// NewDomainCommand returns the command `berth domain`.
func NewDomainCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "domain", Aliases: []string{"domains"}, Short: "Show domains, each with a leader of its own",
		Args: cobra.ArbitraryArgs, RunE: session.RunGroup,
	}
	cmd.AddCommand(newDomainListCommand(sess), newDomainStatusCommand(sess))
	return cmd
}

// domainListCommand is `berth domain ls`.
type domainListCommand struct{ *session.Session }

func newDomainListCommand(sess *session.Session) *cobra.Command {
	d := &domainListCommand{sess}
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the domains with their leaders",
		Long: "List the domains. Each has nodes, clusters and a leader of its own, and tasks of its clusters run on\n" +
			"its nodes only. A manifest of the kind Domain makes one; 'berth run' applies it. A cluster names its\n" +
			"domain in its manifest, and 'berth node domain' gives a node to a domain.",
		Args: session.Arguments(0, 0, ""), RunE: sess.WithClient(d.run),
	}
}

func (d *domainListCommand) run(ctx context.Context, c *client.Client, _ []string) error {
	domains, _, err := client.All(ctx, client.ListOptions{}, c.Domains)
	if err != nil {
		return err
	}
	return session.PrintList(d.Session, domains, "No domains.", domainTable)
}

func domainTable(domains []api.DomainView) output.Table {
	t := output.Table{Titles: []string{"DOMAIN", "LEADER", "SCHEDULER", "NODES>", "CLUSTERS>", "STATE"}}
	for i := range domains {
		d := &domains[i]
		t.Add(d.Name, leaderText(d.Status.Leader), d.SchedulerName(), strconv.Itoa(countNodes(d.Status.Nodes)),
			strconv.Itoa(d.Status.Clusters), domainState(&d.Status))
	}
	return t
}

// leaderText names the server that leads.
func leaderText(l *api.LeaderView) string {
	if l == nil || l.ID == "" {
		return "none"
	}
	return cmp.Or(l.Name, l.ID)
}

// countNodes returns the number of nodes that exist.
func countNodes(nodes map[cluster.NodeState]int) (n int) {
	for _, count := range nodes { // order-free: a sum
		n += count
	}
	return n
}

// domainState says in some words whether a domain works.
func domainState(s *api.DomainStatus) string {
	switch {
	case s.Leader == nil || s.Leader.ID == "":
		return "no leader"
	case s.RecoveryNeeded:
		return "the store went back: berth operator recover"
	case s.MassSilence:
		return "mass silence"
	}
	return "ok"
}

// schedulerText names the scheduler that places the tasks of a domain, and why.
func schedulerText(d *api.Domain) string {
	external, claim, name := d.External(), d.Claim, d.SchedulerName()
	switch {
	case external == nil:
		return name
	case claim == nil:
		return name + ", which has not claimed the domain yet"
	case d.TakenOver():
		return name + " since " + claim.Since.Format(time.RFC3339) + ": " + claim.Reason
	case claim.Instance != "":
		name += " (" + claim.Instance + ")"
	}
	return fmt.Sprintf("%s since %s; %s takes over after %s of silence", name, claim.Since.Format(time.RFC3339),
		cluster.BuiltinScheduler, cluster.Duration(external.TakeOverAfter()))
}

// domainStatusCommand is `berth domain status`.
type domainStatusCommand struct{ *session.Session }

func newDomainStatusCommand(sess *session.Session) *cobra.Command {
	d := &domainStatusCommand{sess}
	return &cobra.Command{
		Use: "status DOMAIN", Short: "Show a domain with its settings and nodes",
		Args:              session.Arguments(1, 1, "the name of a domain"),
		ValidArgsFunction: sess.CompleteNames(wording.KindDomain),
		RunE:              sess.WithClient(d.run),
	}
}

func (d *domainStatusCommand) run(ctx context.Context, c *client.Client, args []string) error {
	return PrintDomain(ctx, d.Session, c, args[0])
}

// PrintDomain prints one domain with its nodes.
func PrintDomain(ctx context.Context, sess *session.Session, c *client.Client, name string) error {
	v, err := session.FindDomain(ctx, c, name)
	if err != nil {
		return err
	}
	if sess.WantsData() {
		return sess.PrintData(v)
	}
	facts := output.Table{Titles: []string{"", ""}}
	facts.Add("domain", v.Name)
	facts.Add("state", domainState(&v.Status))
	facts.Add("leader", leaderText(v.Status.Leader))
	facts.Add("scheduler", schedulerText(&v.Domain))
	facts.Add("clusters", strconv.Itoa(v.Status.Clusters))
	facts.Add("pools", strings.Join(v.Pools, ", "))
	l := v.Silence.Limits()
	facts.Add("silence", "suspect after "+l.Suspect.String()+", down after "+l.Down.String()+
		"; tasks of services are replaced after "+l.Services.String()+", of jobs after "+l.Jobs.String())
	if v.Projection == cluster.ProjectionImmediate {
		facts.Add("projection", string(v.Projection))
	}
	if err := sess.PrintTable(facts); err != nil {
		return err
	}
	nodes, err := session.ListNodes(ctx, c, "")
	if err != nil {
		return err
	}
	nodes = slices.DeleteFunc(nodes, func(n api.NodeView) bool { return n.Domain != v.Name })
	if len(nodes) == 0 {
		return nil
	}
	sess.Printf("")
	return sess.PrintTable(nodeTable(sess, nodes, serverNames(ctx, sess, c)))
}

// domainCommand is `berth node domain`.
type domainCommand struct {
	*session.Session
	force bool
}

func newNodeDomainCommand(sess *session.Session) *cobra.Command {
	d := &domainCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "domain NODE DOMAIN", Short: "Give a node to a domain",
		Long: "Gives a node to a domain. The node's present domain drains it first: its tasks move to other nodes\n" +
			"of that domain, and then the new domain claims the node. With --force the new domain takes the node\n" +
			"at once; the tasks on it run on until the former domain has replaced them. --force is for a domain\n" +
			"that cannot drain.",
		Args:              session.Arguments(2, 2, "the name of a node and of a domain"),
		ValidArgsFunction: sess.CompleteNodeThen(2, session.DomainNames),
		RunE:              d.run,
	}
	cmd.Flags().BoolVar(&d.force, "force", false, "take the node without a drain")
	return cmd
}

func (d *domainCommand) run(cmd *cobra.Command, args []string) error {
	return changeNode(d.Session, cmd, args[0], func(c *client.Client, n api.NodeView) error {
		v, err := c.DomainNode(cmd.Context(), n.Name, args[1], d.force, client.Condition{})
		if err != nil {
			return err
		}
		if v.Domain != args[1] && v.Domain != "" {
			return printNode(d.Session, v, "is given to the domain "+args[1]+"; "+v.Domain+" drains it first")
		}
		return printNode(d.Session, v, "is given to the domain "+args[1])
	})
}
