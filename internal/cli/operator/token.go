package operator

import (
	"cmp"
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
		RunE: sess.RunGroup,
	}
	cmd.AddCommand(newTokenCreateCommand(sess), newTokenLsCommand(sess), newTokenRevokeCommand(sess))
	return cmd
}

func newTokenCreateCommand(sess *session.Session) *cobra.Command {
	var join bool
	var life time.Duration
	var role string
	var r api.TokenRequest
	cmd := &cobra.Command{
		Use: "create --role ROLE", Short: "Create a token and print it once",
		Long: "Creates a token and prints it to standard output. The token is never shown again. The role of a\n" +
			"person or a program is admin, operator, submitter or viewer. With --join, a machine trades the token\n" +
			"for the certificate of a node or a server.",
		Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.Role, r.Purpose, r.Life = cluster.Role(role), cluster.TokenAccess, cluster.Duration(life)
			if join {
				r.Purpose = cluster.TokenJoin
			}
			if err := checkToken(cmd, &r); err != nil {
				return err
			}
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			made, err := c.CreateToken(cmd.Context(), r)
			if err != nil {
				return err
			}
			if sess.WantsData() {
				return sess.PrintData(made)
			}
			sess.Printf("%s", made.Token)
			sess.Messagef("berth: token %s, %s%s; it is never shown again", made.ID, made.Role,
				tokenValidity(made.TokenView))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&role, "role", "", "admin, operator, submitter or viewer; with --join node or server")
	f.BoolVar(&join, "join", false, "a token that a machine trades for its certificate")
	f.DurationVar(&life, "ttl", 0, "lifetime; default unlimited, with --join one hour")
	f.IntVar(&r.Uses, "uses", 0, "with --join: number of machines that may use the token; default 1")
	f.StringVar(&r.Name, "name", "", "name of the holder, or the purpose")
	f.StringArrayVar(&r.Clusters, "cluster", nil, "the only cluster that the token gives access to; may be "+
		"given several times")
	sess.CompleteFlags(cmd, map[string]string{"cluster": wording.KindCluster})
	f.StringVar(&r.For, "for", "", "with --join: the only node that may use it")
	session.RegisterCompletion(cmd, "role",
		cobra.FixedCompletions(enum.Words(reflect.TypeFor[cluster.Role]()), cobra.ShellCompDirectiveNoFileComp))
	return cmd
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
		list.Add("--ttl %v: want a positive duration", time.Duration(r.Life))
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
		parts = append(parts, "until "+v.Expires.UTC().Format(time.RFC3339))
	}
	if len(parts) == 0 {
		return ""
	}
	return ", " + strings.Join(parts, ", ")
}

func newTokenLsCommand(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List tokens, without their secrets",
		Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			tokens, _, err := client.All(cmd.Context(), client.ListOptions{}, c.Tokens)
			if err != nil {
				return err
			}
			slices.SortStableFunc(tokens, func(x, y api.TokenView) int {
				return cmp.Or(cmp.Compare(x.Purpose, y.Purpose), x.Created.Compare(y.Created), cmp.Compare(x.ID, y.ID))
			})
			if sess.WantsData() {
				return sess.PrintData(output.EmptyIfNil(tokens))
			}
			if len(tokens) == 0 {
				sess.Messagef("No tokens. Create one with 'berth token create'.")
				return nil
			}
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
					expires = v.Expires.UTC().Format("2006-01-02 15:04")
				}
				t.Add(v.ID, v.Name, string(v.Role), v.State, string(v.Purpose), strings.Join(v.Clusters, ","), uses,
					sess.Age(v.Created), expires, v.By)
			}
			return sess.PrintTable(t)
		},
	}
}

func newTokenRevokeCommand(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "revoke TOKEN...", Short: "Revoke tokens immediately",
		Args:              session.Arguments(1, -1, "the id of a token, as `berth token ls` shows it"),
		ValidArgsFunction: sess.CompleteAll(session.KindToken),
		Long: "Revokes tokens immediately. A certificate that a machine got for a join token stays valid: revoke it\n" +
			"with `berth node forget` or `berth server remove`.",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			for _, arg := range args {
				id, _, _ := strings.Cut(arg, ".") // the argument may be the whole token, which begins with its id
				if err := c.RevokeToken(cmd.Context(), id); err != nil {
					if client.StatusOf(err) == 404 {
						return fmt.Errorf("there is no token %q: 'berth token ls' lists them", id)
					}
					return err
				}
				if !sess.WantsData() {
					sess.Printf("token %s is revoked", id)
				}
			}
			return nil
		},
	}
}
