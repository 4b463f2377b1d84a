package operator

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
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
	"github.com/berthd/berth/internal/enum"
	"github.com/berthd/berth/internal/wording"
)

// NewTokenCommand returns `berth token`.
func NewTokenCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "token", Short: "Manage tokens of people, programs and machines", Args: cobra.ArbitraryArgs,
		RunE: session.RunGroup,
	}
	cmd.AddCommand(newTokenCreateCommand(sess), newTokenLsCommand(sess), newTokenRevokeCommand(sess))
	return cmd
}

// tokenCreateCommand is `berth token create`.
type tokenCreateCommand struct {
	*session.Session
	request api.TokenRequest
	role    string
	join    bool
	ttl     time.Duration
}

func newTokenCreateCommand(sess *session.Session) *cobra.Command {
	t := &tokenCreateCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "create --role ROLE", Short: "Create a token and print it once",
		Long: "Creates a token and prints it to standard output. The token is never shown again. The role of a\n" +
			"person or a program is admin, operator, submitter or viewer. With --join, a machine trades the token\n" +
			"for the certificate of a node or a server.",
		Args: session.Arguments(0, 0, ""),
		RunE: t.run,
	}
	f := cmd.Flags()
	f.StringVar(&t.role, "role", "", "admin, operator, submitter or viewer; with --join node or server")
	f.BoolVar(&t.join, "join", false, "a token that a machine trades for its certificate")
	f.DurationVar(&t.ttl, "ttl", 0, "lifetime; default unlimited, with --join one hour")
	f.IntVar(&t.request.Uses, "uses", 0, "with --join: number of machines that may use the token; default 1")
	f.StringVar(&t.request.Name, "name", "", "name of the holder, or the purpose")
	f.StringArrayVarP(&t.request.Clusters, "cluster", "n", nil, "the only cluster that the token gives access to; "+
		"may be given several times")
	sess.CompleteFlags(cmd, map[string]string{"cluster": wording.KindCluster})
	f.StringVar(&t.request.For, "for", "", "with --join: the only node that may use it")
	session.RegisterCompletion(cmd, "role",
		cobra.FixedCompletions(enum.Words(reflect.TypeFor[cluster.Role]()), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (t *tokenCreateCommand) run(cmd *cobra.Command, _ []string) error {
	r := &t.request
	r.Role, r.Purpose, r.Life = cluster.Role(t.role), cluster.TokenAccess, cluster.Duration(t.ttl)
	if t.join {
		r.Purpose = cluster.TokenJoin
	}
	if err := checkToken(cmd, r); err != nil {
		return err
	}
	c, err := t.Connect()
	if err != nil {
		return err
	}
	made, err := c.CreateToken(cmd.Context(), *r)
	if err != nil {
		return err
	}
	if t.WantsData() {
		return t.PrintData(made)
	}
	t.Printf("%s", made.Token)
	t.Messagef("berth: token %s, %s%s; it is never shown again", made.ID, made.Role,
		tokenValidity(made.TokenView))
	return nil
}

// checkToken returns an error with all faults of the flags.
func checkToken(cmd *cobra.Command, r *api.TokenRequest) error {
	var list session.Faults
	people := []cluster.Role{cluster.RoleAdmin, cluster.RoleOperator, cluster.RoleSubmitter, cluster.RoleViewer}
	machines := []cluster.Role{cluster.RoleNode, cluster.RoleServer}
	join := r.Purpose == cluster.TokenJoin
	switch {
	case r.Role == "":
		list.Add("--role is missing: want admin, operator, submitter or viewer, or with --join node or server")
	case join && !slices.Contains(machines, r.Role):
		list.Add("--role %q: with --join want node or server", r.Role)
	case !join && slices.Contains(machines, r.Role):
		list.Add("--role %s is for machines, which join: add --join", r.Role)
	case !join && !slices.Contains(people, r.Role):
		list.Add("--role %q: want admin, operator, submitter or viewer, or with --join node or server", r.Role)
	}
	if r.Life < 0 {
		list.Add("--ttl %s: want a positive duration", r.Life)
	}
	if r.Uses < 0 {
		list.Add("--uses %d: want at least 1", r.Uses)
	}
	if !join && r.Uses != 0 {
		list.Add("--uses needs --join: only machines have a limited number of uses")
	}
	if !join && r.For != "" {
		list.Add("--for needs --join: only machines use such a token")
	}
	if join && len(r.Clusters) > 0 {
		list.Add("--cluster does not work with --join: a machine serves all clusters")
	}
	return list.Err(cmd)
}

// tokenValidity describes when a token expires.
func tokenValidity(v api.TokenView) string {
	var parts []string
	if v.Purpose == cluster.TokenJoin {
		parts = append(parts, "to join, "+wording.Count(max(v.Uses, 1), "time"))
	}
	if len(v.Clusters) > 0 {
		parts = append(parts, "for cluster "+strings.Join(v.Clusters, ", "))
	}
	if !v.Expires.IsZero() {
		parts = append(parts, "until "+output.FormatMinute(v.Expires))
	}
	if len(parts) == 0 {
		return ""
	}
	return ", " + strings.Join(parts, ", ")
}

// tokenLsCommand is `berth token ls`.
type tokenLsCommand struct{ *session.Session }

func newTokenLsCommand(sess *session.Session) *cobra.Command {
	l := &tokenLsCommand{sess}
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List tokens, without their secrets",
		Args: session.Arguments(0, 0, ""),
		RunE: sess.WithClient(l.run),
	}
}

func (l *tokenLsCommand) run(ctx context.Context, c *client.Client, _ []string) error {
	tokens, _, err := client.All(ctx, client.ListOptions{}, c.Tokens)
	if err != nil {
		return err
	}
	slices.SortStableFunc(tokens, func(x, y api.TokenView) int {
		return cmp.Or(cmp.Compare(x.Purpose, y.Purpose), x.Created.Compare(y.Created), cmp.Compare(x.ID, y.ID))
	})
	return session.PrintList(l.Session, tokens, "No tokens. Create one with 'berth token create'.", l.table)
}

func (l *tokenLsCommand) table(tokens []api.TokenView) output.Table {
	t := output.Table{StateColumn: 3, Titles: []string{
		"TOKEN", "NAME", "ROLE", "STATE", "PURPOSE", "CLUSTERS", "USES>",
		"AGE>", "EXPIRES", "+BY",
	}}
	for _, v := range tokens {
		uses, expires := "", ""
		if v.Purpose == cluster.TokenJoin {
			uses = output.Share(strconv.Itoa(v.Used), strconv.Itoa(max(v.Uses, 1)))
		}
		if !v.Expires.IsZero() {
			expires = output.FormatMinute(v.Expires)
		}
		t.Add(v.ID, v.Name, string(v.Role), string(v.State), string(v.Purpose), strings.Join(v.Clusters, ","), uses,
			l.Age(v.Created), expires, v.By)
	}
	return t
}

// tokenRevokeCommand is `berth token revoke`.
type tokenRevokeCommand struct{ *session.Session }

func newTokenRevokeCommand(sess *session.Session) *cobra.Command {
	t := &tokenRevokeCommand{sess}
	return &cobra.Command{
		Use: "revoke TOKEN...", Short: "Revoke tokens immediately",
		Args:              session.Arguments(1, -1, "the id of a token, as `berth token ls` shows it"),
		ValidArgsFunction: sess.CompleteAll(session.KindToken),
		Long: "Revokes tokens immediately. A certificate that a machine got for a join token stays valid: revoke it\n" +
			"with `berth node forget` or `berth server remove`.",
		RunE: sess.WithClient(t.run),
	}
}

func (t *tokenRevokeCommand) run(ctx context.Context, c *client.Client, args []string) error {
	for _, arg := range args {
		id, _, _ := strings.Cut(arg, ".") // the argument may be the whole token, which begins with its id
		if err := c.RevokeToken(ctx, id); err != nil {
			if client.StatusOf(err) == 404 {
				return fmt.Errorf("there is no token %q: 'berth token ls' lists them", id)
			}
			return err
		}
		if !t.WantsData() {
			t.Printf("token %s is revoked", id)
		}
	}
	return nil
}
