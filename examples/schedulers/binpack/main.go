// Command binpack is a scheduler for Berth over its client: it fills one node of a domain after the other. See
// docs/guide/schedulers.md.
//
//	go run . -server https://10.0.0.1:7071 -ca-file ca.crt -token-file token -domain ci
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
)

// maxCommands is the number of commands that one proposal holds here. Berth allows 10,000.
const maxCommands = 5000

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "binpack:", err)
		os.Exit(1)
	}
}

// scheduler knows a domain by its state. One goroutine uses it.
type scheduler struct {
	client *client.Client
	domain string
	claim  api.ClaimRequest
	beat   time.Duration

	claimed  bool
	revision uint64 // of the domain's record, as claimed
	base     string // the revision of the state
	nodes    map[string]*api.SchedulingNode
	groups   map[string]*api.SchedulingGroup
	// refused holds, by task and node, until when a refusal keeps the task away.
	refused map[[2]string]time.Time
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("binpack", flag.ContinueOnError)
	server := flags.String("server", os.Getenv("BERTH_ADDR"), "addresses of servers, separated by commas")
	tokenFile := flags.String("token-file", "", "a file with the access token that the domain names")
	caFile := flags.String("ca-file", "", "the authority of the servers; default the machine's")
	s := &scheduler{refused: map[[2]string]time.Time{}}
	flags.StringVar(&s.domain, "domain", "default", "the domain to place")
	flags.StringVar(&s.claim.Name, "name", "binpack", "the name of the scheduler in the domain")
	flags.StringVar(&s.claim.Instance, "instance", fmt.Sprint("process-", os.Getpid()), "the name of this process")
	flags.DurationVar(&s.beat, "beat", 5*time.Second, "time between signs of life")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config := client.Config{Addr: *server, Agent: "berth-binpack"}
	if *tokenFile != "" {
		text, err := os.ReadFile(*tokenFile)
		if err != nil {
			return err
		}
		config.Token = strings.TrimSpace(string(text))
	}
	if *caFile != "" {
		text, err := os.ReadFile(*caFile)
		if err != nil {
			return err
		}
		if config.TLS, err = client.TrustCA(text); err != nil {
			return err
		}
	}
	c, err := client.New(config)
	if err != nil {
		return err
	}
	defer c.Close()
	s.client = c
	return s.run(ctx)
}

// run claims the domain and places what waits, until the context ends or another instance claims the domain.
func (s *scheduler) run(ctx context.Context) error {
	batches := make(chan []api.SchedulingLine, 64)
	go s.follow(ctx, batches)
	beat := time.NewTicker(s.beat)
	defer beat.Stop()
	for {
		err := s.turn(ctx, batches, beat.C)
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case client.StatusOf(err) == http.StatusConflict:
			s.revision = 0
		}
		fmt.Println("trying again:", err)
		if holder := s.laterInstance(ctx); holder != "" {
			return errors.New("fenced off: " + holder)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// turn claims the domain if it has to, waits for a change, and proposes what follows. A proposal is due at each beat,
// too: it is the sign of life, by which Berth knows that the scheduler works.
func (s *scheduler) turn(ctx context.Context, batches <-chan []api.SchedulingLine, beat <-chan time.Time) error {
	if s.revision == 0 {
		v, err := s.client.ClaimDomain(ctx, s.domain, s.claim)
		if err != nil {
			return err
		}
		s.revision, s.claimed = v.Revision, true
		fmt.Printf("claimed the domain %s at revision %d\n", s.domain, s.revision)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-beat:
	case lines := <-batches:
		s.learn(lines)
		for len(batches) > 0 { // one decision covers all that came
			s.learn(<-batches)
		}
		if s.base == "" {
			return nil
		}
	}
	p := api.Proposal{DomainRevision: s.revision, Base: s.base}
	if s.base != "" {
		p.Commands = s.decide()
	}
	answer, err := s.client.Propose(ctx, s.domain, p, false)
	if err != nil {
		return err
	}
	for i, r := range answer.Results {
		if r.Accepted {
			continue
		}
		fmt.Printf("%s on %s: %s\n", r.Task, p.Commands[i].Node, r.Message)
		if r.Code != "stale" {
			s.refused[[2]string{string(r.Task), p.Commands[i].Node}] = time.Now().Add(10 * time.Second)
		}
	}
	return nil
}

// laterInstance names the instance of this scheduler that claimed the domain since this one did, "" if none did or the
// domain cannot be read: the next claim then fails or succeeds.
func (s *scheduler) laterInstance(ctx context.Context) string {
	v, err := s.client.Domain(ctx, s.domain)
	if err != nil || !s.claimed || v.Claim == nil || v.Claim.Holder != s.claim.Name ||
		v.Claim.Instance == s.claim.Instance {
		return ""
	}
	return fmt.Sprintf("%s holds the domain since %s", v.Claim.Instance, v.Claim.Since)
}

// follow reads the state of the domain and its changes. Lines up to a revision belong together.
func (s *scheduler) follow(ctx context.Context, batches chan<- []api.SchedulingLine) {
	since := ""
	for ctx.Err() == nil {
		var batch []api.SchedulingLine
		for line, err := range s.client.SchedulingState(ctx, s.domain, since, true) {
			if err != nil {
				fmt.Println("the state broke off:", err)
				break
			}
			batch = append(batch, line)
			if line.Revision == "" {
				continue
			}
			select {
			case batches <- batch:
				since, batch = line.Revision, nil
			case <-ctx.Done():
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// learn takes lines of the state.
func (s *scheduler) learn(lines []api.SchedulingLine) {
	for _, l := range lines {
		switch {
		case l.Reset:
			s.nodes, s.groups = map[string]*api.SchedulingNode{}, map[string]*api.SchedulingGroup{}
		case l.Node != nil:
			s.nodes[l.Node.Name] = l.Node
		case l.Group != nil:
			s.groups[l.Group.ID] = l.Group
		case l.RemovedNode != "":
			delete(s.nodes, l.RemovedNode)
		case l.RemovedGroup != "":
			delete(s.groups, l.RemovedGroup)
		case l.Revision != "":
			s.base = l.Revision
		}
	}
}

// decide returns commands that fill one node after the other, in the order of the nodes' names. Berth checks all that
// is left out here: constraints, ports, devices.
func (s *scheduler) decide() (commands []api.ProposalCommand) {
	now := time.Now()
	maps.DeleteFunc(s.refused, func(_ [2]string, until time.Time) bool { return until.Before(now) })
	names := slices.Sorted(maps.Keys(s.nodes))
	free := make(map[string]api.Room, len(names))
	for _, name := range names {
		free[name] = s.nodes[name].Free
	}
	groups := slices.SortedFunc(maps.Values(s.groups), func(a, b *api.SchedulingGroup) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID))
	})
	for _, g := range groups {
		first := 0 // the nodes before have no room for the group
		for _, w := range g.Pending {
			if w.Held != "" || w.OnlyNode != "" { // Berth places tasks with one possible node itself
				continue
			}
			for i := range 1 + w.Further {
				if len(commands) == maxCommands {
					return commands
				}
				task := w.Task.Offset(i)
				for first < len(names) && !free[names[first]].Holds(g.Demand) {
					first++
				}
				at := slices.IndexFunc(names[first:], func(name string) bool {
					return s.nodes[name].Accepts && free[name].Holds(g.Demand) &&
						!slices.Contains(w.ExcludedNodes, name) && s.refused[[2]string{string(task), name}].IsZero()
				})
				if at < 0 {
					commands = append(commands, api.ProposalCommand{
						Action: api.ProposeWait, Task: task, Reason: "no node has room for it",
					})
					continue
				}
				node := names[first+at]
				free[node] = free[node].Sub(g.Demand)
				commands = append(commands, api.ProposalCommand{
					Action: api.ProposePlace, Task: task, Node: node, Attempt: w.Attempt,
				})
			}
		}
	}
	return commands
}
