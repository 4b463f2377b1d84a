package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
)

func (a *app) newServerMembersCommand() *cobra.Command {
	return &cobra.Command{
		Use: "members", Aliases: []string{"ls"}, Short: "List the servers and their parts in the store",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			servers, err := allServers(cmd.Context(), c)
			if err != nil {
				return err
			}
			if a.data() {
				return a.printData(emptyIsList(servers))
			}
			return a.printTable(a.serverTable(servers))
		},
	}
}

// allServers returns the servers, trouble first.
func allServers(ctx context.Context, c *client.Client) ([]api.ServerView, error) {
	servers, _, err := client.All(ctx, client.ListOptions{}, c.Servers)
	slices.SortStableFunc(servers, func(x, y api.ServerView) int {
		return cmp.Or(cmp.Compare(serverRank(x), serverRank(y)), cmp.Compare(x.Name, y.Name), cmp.Compare(x.ID, y.ID))
	})
	return servers, err
}

func serverRank(v api.ServerView) int {
	return slices.Index([]api.ServerState{api.ServerDown, api.ServerUnknown, api.ServerJoining, api.ServerUp}, v.State)
}

func (a *app) serverTable(servers []api.ServerView) table {
	t := table{state: 2, titles: []string{
		"SERVER", "ID", "STATE", "ROLE", "ADDRESS", "STARTED>", "VERSION", "+WIRE", "+RECORDS", "+MEMBER",
		"+PEER ADDRESS", "MESSAGE",
	}}
	for _, v := range servers {
		member, peer := v.Member, ""
		if v.Engine != nil {
			member, peer = v.Engine.ID, v.Engine.Peer
		}
		t.add(cmp.Or(v.Name, shortID(v.ID), member), shortID(v.ID), string(v.State), serverRole(v), cmp.Or(v.API, peer),
			a.age(v.Started), v.Version, versions(v, v.WireMin, v.Wire), versions(v, v.RecordsMin, v.Records), member,
			peer, oneLine(v.Reason))
	}
	return t
}

// versions shows a range of versions of a server; one that has not started yet has none.
func versions(v api.ServerView, oldest, newest int) string {
	if v.Version == "" {
		return ""
	}
	oldest, newest = max(oldest, 1), max(newest, 1)
	if oldest == newest {
		return strconv.Itoa(newest)
	}
	return strconv.Itoa(oldest) + "-" + strconv.Itoa(newest)
}

// serverRole says what part a server has: who leads the domain, who leads or only copies the store.
func serverRole(v api.ServerView) string {
	var parts []string
	if v.Leader {
		parts = append(parts, "leads")
	}
	if e := v.Engine; e != nil {
		switch {
		case e.Leader:
			parts = append(parts, "store leader")
		case e.Learner:
			parts = append(parts, "learner")
		case v.State == api.ServerJoining: // it has not taken part yet
		default:
			parts = append(parts, "voter")
		}
	}
	return strings.Join(parts, ", ")
}

// shortID is as much of an id as people need.
func shortID(id string) string { return id[:min(len(id), 8)] }

// findServer returns the server of a name, an id or the beginning of an id.
func findServer(ctx context.Context, c *client.Client, text string) (api.ServerView, error) {
	servers, err := allServers(ctx, c)
	if err != nil {
		return api.ServerView{}, err
	}
	var hits []api.ServerView
	var known []string
	for _, v := range servers {
		member := v.Member
		if v.Engine != nil {
			member = v.Engine.ID
		}
		known = append(known, cmp.Or(v.Name, shortID(v.ID), member))
		if v.Name == text || v.ID == text || member == text || len(text) >= 4 && strings.HasPrefix(v.ID, text) {
			hits = append(hits, v)
		}
	}
	switch len(hits) {
	case 0:
		return api.ServerView{}, unknown("server", text, known)
	case 1:
		return hits[0], nil
	}
	var candidates []string
	for _, v := range hits {
		candidates = append(candidates, v.Name+" ("+v.ID+")")
	}
	return api.ServerView{}, ambiguous(text, candidates)
}

// memberID is what the API calls a server: its id, or its member's where it has not started yet.
func memberID(v api.ServerView) string {
	if v.ID == "" && v.Engine != nil {
		return v.Engine.ID
	}
	return v.ID
}

// serverCommand returns a command about one server.
func (a *app) serverCommand(use, short, long string,
	do func(cmd *cobra.Command, c *client.Client, v api.ServerView) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use + " SERVER", Short: short, Long: long, Args: arguments(1, 1, "the name or the id of a server"),
		ValidArgsFunction: a.completeNames(wordServer),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			v, err := findServer(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return do(cmd, c, v)
		},
	}
}

func (a *app) newServerPromoteCommand() *cobra.Command {
	return a.serverCommand("promote", "Give a server that copies the store its vote",
		"Gives a learner its vote in the store. Servers that joined get it by themselves once they have "+
			"caught up; this is for\n"+
			"when one does not, and says why.",
		func(cmd *cobra.Command, c *client.Client, v api.ServerView) error {
			now, err := c.PromoteServer(cmd.Context(), memberID(v))
			if err != nil {
				return err
			}
			if a.data() {
				return a.printData(now)
			}
			a.say("%s has a vote", cmp.Or(v.Name, memberID(v)))
			return nil
		})
}

func (a *app) newServerRemoveCommand() *cobra.Command {
	var force bool
	cmd := a.serverCommand("remove", "Take a server out for good",
		"Takes a server out of the store's members and deletes its record; if it is up it ends by itself. "+
			"Its data directory is of no more use:\n"+
			"to let the machine join again, empty it first. Refused where those that are left would have no quorum.",
		func(cmd *cobra.Command, c *client.Client, v api.ServerView) error {
			err := c.RemoveServer(cmd.Context(), memberID(v), force)
			if hint := removeHint(v); client.StatusOf(err) == http.StatusConflict && (!force || v.Engine != nil) {
				return &hintedError{err, hint}
			}
			if err != nil {
				return err
			}
			if !a.data() {
				a.say("%s is removed", cmp.Or(v.Name, memberID(v)))
			}
			return nil
		})
	cmd.Flags().BoolVar(&force, "force", false,
		"even where it is up, and the store runs elsewhere, so that it does not end by itself")
	return cmd
}

// removeHint says how a server is removed that may not be as things are.
func removeHint(v api.ServerView) string {
	switch {
	case v.Engine != nil:
		return "Bring another server up first: no store lets its quorum go. If more than half of the " +
			"servers are lost for good, stop what is left\n" +
			"and go on with one of them: berth server recover-quorum."
	case v.Self: // the store runs elsewhere, and it does not end itself
		return "Stop it, and ask another server: name that with --addr."
	}
	return "Stop it on its machine first, or say --force if that is meant."
}

// serversLine says in a line how the servers are.
func serversLine(s api.Status) string {
	leader := "nobody leads"
	if s.Leader != nil && s.Leader.ID != "" {
		leader = cmp.Or(s.Leader.Name, shortID(s.Leader.ID)) + " leads"
	}
	text := fmt.Sprintf("%s: %d up, %s", count(s.Servers.Total, "server"), s.Servers.Up, leader)
	if s.Servers.Learners > 0 {
		text += fmt.Sprintf(", %s", count(s.Servers.Learners, "learner"))
	}
	if q := s.Servers.Quorum; q > 0 && s.Servers.Total > 1 {
		text += fmt.Sprintf("; writes need %d", q)
	}
	return text
}
