// Package login implements the commands context and login, which keep the servers that a person works with.
package login

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/contexts"
	"github.com/berthd/berth/internal/wording"
)

// NewContextCommand returns the command `berth context`.
func NewContextCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "context", Aliases: []string{"contexts", "ctx"}, Short: "Manage the servers that you work with",
		Args: cobra.ArbitraryArgs, RunE: session.RunGroup,
		Long: "A context names a control plane: the addresses of its servers, your token, and the certificate\n" +
			"authority. Commands talk to the current context unless --context, BERTH_CONTEXT, --addr or BERTH_ADDR\n" +
			"names another server. 'berth login' adds a context and tries it. 'berth dev' adds its own context\n" +
			"and removes it at its end.\n\n" +
			"A context may have a cluster ('berth context use NAME -n CLUSTER'). It is the default of -n.\n\n" +
			"The contexts are in the file berth/contexts.json of the configuration folder, which only you can read.",
	}
	cmd.AddCommand(newContextLsCommand(sess), newContextUseCommand(sess), newContextAddCommand(sess),
		newContextRmCommand(sess))
	return cmd
}

// contextView is a context without its token.
type contextView struct {
	Name      string   `json:"name"`
	Current   bool     `json:"current"`
	Addresses []string `json:"addresses"`
	Cluster   string   `json:"cluster,omitempty"`
	HasToken  bool     `json:"has_token"`
	TokenFile string   `json:"token_file,omitempty"`
	CAHash    string   `json:"ca_hash,omitempty"`
	CAFile    string   `json:"ca_file,omitempty"`
	Dev       string   `json:"dev,omitempty"`
}

// ObjectName returns the name for -o name.
func (v contextView) ObjectName() string { return v.Name }

type contextLsCommand struct{ *session.Session }

func newContextLsCommand(sess *session.Session) *cobra.Command {
	l := &contextLsCommand{sess}
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List contexts",
		Long: "Lists the contexts. A star marks the current one. Tokens are never shown.",
		Args: session.Arguments(0, 0, ""), RunE: l.run,
	}
}

func (l *contextLsCommand) run(*cobra.Command, []string) error {
	f, err := load()
	if err != nil {
		return err
	}
	views := make([]contextView, len(f.Contexts))
	for i, c := range f.Contexts {
		views[i] = contextView{
			Name: c.Name, Current: c.Name == f.Current, Addresses: c.Addresses, Cluster: c.Cluster, Dev: c.Dev,
			HasToken: c.Token != "" || c.TokenFile != "", TokenFile: c.TokenFile, CAHash: c.CAHash, CAFile: c.CAFile,
		}
	}
	return session.PrintList(l.Session, views, "No contexts. Add one with 'berth login ADDRESS', or start 'berth dev'.",
		func(views []contextView) output.Table {
			t := output.Table{Titles: []string{"CURRENT", "NAME", "ADDRESSES", "CLUSTER", "TOKEN", "NOTE"}}
			for _, v := range views {
				t.Add(yes(v.Current, "*"), v.Name, strings.Join(v.Addresses, ","), v.Cluster,
					yes(v.HasToken, "yes"),
					yes(v.Dev != "", "berth dev in "+v.Dev))
			}
			return t
		})
}

func yes(holds bool, text string) string {
	if holds {
		return text
	}
	return ""
}

// load reads the contexts of the user.
func load() (contexts.File, error) {
	path, err := contexts.Path()
	if err != nil {
		return contexts.File{}, err
	}
	return contexts.Load(path)
}

// update changes the contexts of the user.
func update(change func(*contexts.File) error) error {
	path, err := contexts.Path()
	if err != nil {
		return err
	}
	return contexts.Update(path, change)
}

type contextUseCommand struct{ *session.Session }

func newContextUseCommand(sess *session.Session) *cobra.Command {
	u := &contextUseCommand{sess}
	return &cobra.Command{
		Use: "use [NAME]", Short: "Choose the context of the next commands, and its cluster",
		Long: "Makes a context the current one. With -n, also sets its cluster: commands look up names there and\n" +
			"list only its objects. Without NAME, -n sets the cluster of the current context. -A removes the\n" +
			"cluster of the context again.",
		Args:              session.Arguments(0, 1, "the name of a context"),
		ValidArgsFunction: session.CompleteContexts, RunE: u.run,
	}
}

func (u *contextUseCommand) run(cmd *cobra.Command, args []string) error {
	if len(args) == 0 && u.Cluster == "" && !u.AllClusters {
		return session.Arguments(1, 1, "the name of a context, or -n with a cluster")(cmd, nil)
	}
	var chosen contexts.Context
	err := update(func(f *contexts.File) error {
		name := f.Current
		if len(args) > 0 {
			name = args[0]
		}
		var ok bool
		if chosen, ok = f.Find(name); !ok && name == "" {
			return errors.New("no context is the current one: name one")
		} else if !ok {
			return session.UnknownContextError(name, f.Names())
		}
		if u.Cluster != "" || u.AllClusters {
			chosen.Cluster = u.Cluster
			f.Set(chosen)
		}
		f.Current = name
		return nil
	})
	if err != nil {
		return err
	}
	text := "the current context is " + chosen.Name
	if chosen.Cluster != "" {
		text += ", with the cluster " + chosen.Cluster
	}
	u.Messagef("%s", text)
	return nil
}

type contextAddCommand struct{ *session.Session }

func newContextAddCommand(sess *session.Session) *cobra.Command {
	a := &contextAddCommand{sess}
	return &cobra.Command{
		Use: "add NAME --addr ADDRESS", Short: "Add or replace a context without connecting to the server",
		Long: "Adds a context, or replaces that of the name, from --addr, --token-file, --ca-file, --ca-hash and\n" +
			"-n, without talking to the server. The token stays in its file. 'berth login' tries the server and the\n" +
			"token first.",
		Args: session.Arguments(1, 1, "a name for the context"), RunE: a.run,
	}
}

func (a *contextAddCommand) run(cmd *cobra.Command, args []string) error {
	c := contexts.Context{Name: args[0], Addresses: session.SplitList(a.Addrs), Cluster: a.Cluster}
	var list session.Faults
	checkName(&list, c.Name)
	if len(c.Addresses) == 0 {
		list.Add("--addr is missing: want the address of a server, such as https://s1.example:7070")
	}
	if err := list.Err(cmd); err != nil {
		return err
	}
	if err := a.fillTrust(&c); err != nil {
		return err
	}
	var err error
	if c.TokenFile, err = absolute(a.TokenFile); err != nil {
		return err
	}
	if c.TokenFile != "" {
		if err := session.CheckProtected(c.Addresses); err != nil {
			return err
		}
	}
	return save(a.Session, c)
}

// checkName requires a name that is easy to type and to complete.
func checkName(list *session.Faults, name string) {
	if !cluster.ValidNodeName(name) {
		list.Add("%q is not the name of a context: want a-z, 0-9, \"-\" and \".\"", name)
	}
}

// fillTrust sets the certificate authority from the flags and the environment.
func (a *contextAddCommand) fillTrust(c *contexts.Context) (err error) {
	c.CAHash = strings.TrimSpace(a.CAHash)
	if c.CAHash == "" {
		c.CAHash = strings.TrimSpace(a.Env("BERTH_CA_HASH"))
	}
	file := a.CAFile
	if file == "" {
		file = a.Env("BERTH_CA_FILE")
	}
	if c.CAFile, err = absolute(file); err != nil {
		return err
	}
	_, err = session.TrustConfig(c.CAFile, c.CAHash)
	return err
}

// absolute returns the absolute path of a file, "" for none.
func absolute(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	return filepath.Abs(path)
}

// save stores a context, and makes it the current one if there is none.
func save(sess *session.Session, c contexts.Context) error {
	current := ""
	err := update(func(f *contexts.File) error {
		f.Set(c)
		if _, ok := f.Find(f.Current); !ok {
			f.Current = c.Name
		}
		current = f.Current
		return nil
	})
	if err != nil {
		return err
	}
	sess.Messagef("context %s: %s", c.Name, strings.Join(c.Addresses, ","))
	if current != c.Name {
		sess.Messagef("The current context is %s. 'berth context use %s' changes it.", current, c.Name)
	}
	return nil
}

type contextRmCommand struct{ *session.Session }

func newContextRmCommand(sess *session.Session) *cobra.Command {
	r := &contextRmCommand{sess}
	return &cobra.Command{
		Use: "rm NAME...", Aliases: []string{"remove", "delete"}, Short: "Remove contexts",
		Long: "Removes contexts with their tokens from this machine. Nothing changes on the servers: 'berth token\n" +
			"revoke' ends a token.",
		Args:              session.Arguments(1, -1, "the name of a context"),
		ValidArgsFunction: session.CompleteContexts, RunE: r.run,
	}
}

func (r *contextRmCommand) run(_ *cobra.Command, args []string) error {
	wasCurrent := false
	err := update(func(f *contexts.File) error {
		var unknown []error
		for _, name := range args {
			if _, ok := f.Find(name); !ok {
				unknown = append(unknown, session.UnknownError("context", name, f.Names()))
			}
		}
		if len(unknown) > 0 {
			return errors.Join(unknown...)
		}
		for _, name := range args {
			wasCurrent = wasCurrent || f.Current == name
			f.Remove(name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.Messagef("removed %s", wording.Count(len(args), "context"))
	if wasCurrent {
		r.Messagef("No context is the current one now. Choose one with 'berth context use NAME'.")
	}
	return nil
}
