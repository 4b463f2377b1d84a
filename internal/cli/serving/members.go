package serving

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/wording"
)

// membersCommand is `berth server members`.
type membersCommand struct{ *session.Session }

func newServerMembersCommand(sess *session.Session) *cobra.Command {
	m := &membersCommand{sess}
	return &cobra.Command{
		Use: "members", Aliases: []string{"ls"}, Short: "List the servers and their roles in the store",
		Args: session.Arguments(0, 0, ""),
		RunE: sess.WithClient(m.run),
	}
}

func (m *membersCommand) run(ctx context.Context, c *client.Client, _ []string) error {
	servers, err := fetch.ListServers(ctx, c)
	if err != nil {
		return err
	}
	if m.WantsData() {
		return m.PrintData(output.EmptyIfNil(servers))
	}
	if m.Format == output.OutputName {
		return session.PrintNames(m.Session, servers)
	}
	return m.PrintTable(serverTable(m.Session, servers))
}

func serverTable(sess *session.Session, servers []api.ServerView) output.Table {
	t := output.Table{StateColumn: 2, Titles: []string{
		"SERVER", "ID", "STATE", "ROLE", "ADDRESS", "STARTED>", "VERSION", "+WIRE", "+RECORDS", "+MEMBER",
		"+PEER ADDRESS", "MESSAGE",
	}}
	for _, v := range servers {
		member, peer := v.Member, ""
		if v.Engine != nil {
			member, peer = v.Engine.ID, v.Engine.Peer
		}
		t.Add(cmp.Or(v.Name, output.ShortID(v.ID), member), output.ShortID(v.ID), string(v.State), serverRole(v),
			cmp.Or(v.API, peer),
			sess.Age(v.Started), v.Version, versionRange(v, v.WireMin, v.Wire),
			versionRange(v, v.RecordsMin, v.Records),
			member,
			peer, wording.OneLine(v.Reason))
	}
	return t
}

// versionRange formats a range of versions of a server. A server that has not started yet has none.
func versionRange(v api.ServerView, oldest, newest int) string {
	if v.Version == "" {
		return ""
	}
	if oldest == newest {
		return strconv.Itoa(newest)
	}
	return strconv.Itoa(oldest) + "-" + strconv.Itoa(newest)
}

// serverRole returns the role of a server: leader of the domain, leader of the store, or learner.
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
		case v.State == api.ServerJoining: // it has not started yet
		default:
			parts = append(parts, "voter")
		}
	}
	return strings.Join(parts, ", ")
}

// findServer returns the server with this name, id or prefix of an id.
func findServer(ctx context.Context, c *client.Client, text string) (api.ServerView, error) {
	servers, err := fetch.ListServers(ctx, c)
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
		known = append(known, cmp.Or(v.Name, output.ShortID(v.ID), member))
		if v.Name == text || v.ID == text || member == text || len(text) >= 4 && strings.HasPrefix(v.ID, text) {
			hits = append(hits, v)
		}
	}
	switch len(hits) {
	case 0:
		return api.ServerView{}, session.UnknownError("server", text, known)
	case 1:
		return hits[0], nil
	}
	var candidates []string
	for _, v := range hits {
		candidates = append(candidates, v.Name+" ("+v.ID+")")
	}
	return api.ServerView{}, session.AmbiguousError(text, candidates)
}

// memberID returns the id of a server in the API: its server id, or its member id before its first start.
func memberID(v api.ServerView) string {
	if v.ID == "" && v.Engine != nil {
		return v.Engine.ID
	}
	return v.ID
}

// serverCommand returns a command about one server.
func serverCommand(sess *session.Session, use, short, long string,
	do func(context.Context, *client.Client, api.ServerView) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use + " SERVER", Short: short, Long: long, Args: session.Arguments(1, 1, "the name or the id of a server"),
		ValidArgsFunction: sess.CompleteNames(session.KindServer),
		RunE: sess.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			v, err := findServer(ctx, c, args[0])
			if err != nil {
				return err
			}
			return do(ctx, c, v)
		}),
	}
}

func newServerPromoteCommand(sess *session.Session) *cobra.Command {
	return serverCommand(sess, "promote", "Give a learner its vote in the store",
		"Gives a learner its vote in the store. A server that joined gets its vote by itself once it has\n"+
			"caught up. Use this command when it does not; the answer says why.",
		func(ctx context.Context, c *client.Client, v api.ServerView) error {
			now, err := c.PromoteServer(ctx, memberID(v))
			if err != nil {
				return err
			}
			if sess.WantsData() {
				return sess.PrintData(now)
			}
			sess.Printf("%s has a vote", cmp.Or(v.Name, memberID(v)))
			return nil
		})
}

// removeCommand is `berth server remove`.
type removeCommand struct {
	*session.Session
	force bool
}

func newServerRemoveCommand(sess *session.Session) *cobra.Command {
	r := &removeCommand{Session: sess}
	cmd := serverCommand(sess, "remove", "Remove a server permanently",
		"Removes a server from the members of the store and deletes its record. A running server then ends by\n"+
			"itself. Its data directory cannot be used again: empty it before the machine joins again. The\n"+
			"command is refused if the remaining servers would have no quorum.",
		r.run)
	cmd.Flags().BoolVar(&r.force, "force", false,
		"remove a running server that uses an external store, and so does not end by itself")
	return cmd
}

func (r *removeCommand) run(ctx context.Context, c *client.Client, v api.ServerView) error {
	err := c.RemoveServer(ctx, memberID(v), r.force)
	if !r.force || v.Engine != nil {
		err = session.HintOn(err, http.StatusConflict, removeHint(v))
	}
	if err != nil {
		return err
	}
	if !r.WantsData() {
		r.Printf("%s is removed", cmp.Or(v.Name, memberID(v)))
	}
	return nil
}

// removeHint describes what has to happen before a server can be removed.
func removeHint(v api.ServerView) string {
	switch {
	case v.Engine != nil:
		return "Start another server first: the store must keep its quorum.\n" +
			"If more than half of the servers are lost permanently, stop the remaining ones and continue " +
			"with one of them: berth server recover-quorum."
	case v.Self: // the store runs elsewhere, so the server would not end
		return "Stop the server, and send the request to another server with --addr."
	}
	return "Stop the server on its machine first, or confirm with --force."
}

// ServersLine describes the servers in one line.
func ServersLine(s api.Status) string {
	leader := "no leader"
	if s.Leader != nil && s.Leader.ID != "" {
		leader = cmp.Or(s.Leader.Name, output.ShortID(s.Leader.ID)) + " leads"
	}
	text := fmt.Sprintf("%s: %d up, %s", wording.Count(s.Servers.Total, "server"), s.Servers.Up, leader)
	if s.Servers.Learners > 0 {
		text += fmt.Sprintf(", %s", wording.Count(s.Servers.Learners, "learner"))
	}
	if q := s.Servers.Quorum; q > 0 && s.Servers.Total > 1 {
		text += fmt.Sprintf("; writes need %d", q)
	}
	return text
}
