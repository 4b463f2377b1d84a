package resource

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// NewSecretCommand returns the command `berth secret`.
func NewSecretCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "secret", Aliases: []string{"secrets"}, Short: "Manage passwords, keys and certificates for tasks",
		Args: cobra.ArbitraryArgs, RunE: session.RunGroup,
		Long: "Secrets are values for the tasks of a cluster. Tasks get them in files in memory or in variables.\n" +
			"They cannot be read back. The store holds them encrypted. A container names the secrets that it\n" +
			"needs: `secrets: [{secret: db-password, file: /run/secrets/db}]`.",
	}
	cmd.AddCommand(newSecretSetCommand(sess), newSecretLsCommand(sess), newSecretRmCommand(sess))
	return cmd
}

// secretSetCommand is `berth secret set`.
type secretSetCommand struct {
	*session.Session
	request     api.SecretWrite
	file, kind  string
	keepNewline bool
}

func newSecretSetCommand(sess *session.Session) *cobra.Command {
	s := &secretSetCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Create or change a secret",
		Long: "Creates a secret or changes its value. The command reads the value from standard input or from\n" +
			"--file, never from an argument, because other users of the machine can see arguments. It removes one\n" +
			"newline at the end, unless you give --keep-newline.\n\n" +
			"The files of running tasks are replaced immediately. Each use of a secret defines what else happens\n" +
			"(on_change): some services restart, according to their update policies. With --type registry the\n" +
			"value is the password of --username for the images of --registry.",
		Args: session.Arguments(1, 1, "a name for the secret"),
		RunE: s.run,
	}
	f := cmd.Flags()
	f.StringVar(&s.file, "file", "", "`FILE` with the value; default standard input")
	f.BoolVar(&s.keepNewline, "keep-newline", false, "keep a newline at the end of the value")
	f.StringVar(&s.kind, "type", string(cluster.SecretValue), "value or registry")
	f.StringVar(&s.request.Registry, "registry", "", "the `HOST[:PORT]` of the registry, with --type registry")
	f.StringVar(&s.request.Username, "username", "", "user name at the registry, with --type registry")
	return cmd
}

func (s *secretSetCommand) run(cmd *cobra.Command, args []string) error {
	s.request.Type = cluster.SecretType(s.kind)
	value, err := readSecretValue(s.Session, cmd, s.file)
	if err != nil {
		return err
	}
	if !s.keepNewline {
		value = bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r"))
	}
	s.request.Value = base64.StdEncoding.EncodeToString(value)
	c, err := s.Connect()
	if err != nil {
		return err
	}
	v, err := c.PutSecret(cmd.Context(), s.ClusterOfChange(), args[0], s.request, client.Condition{})
	if err != nil {
		return err
	}
	if s.WantsData() {
		return s.PrintData(v)
	}
	s.Printf("secret %s of cluster %s has version %d", v.Name, v.Cluster, v.Version)
	if len(v.Restarted) > 0 {
		s.Printf("services that restart because of the change: %s", strings.Join(v.Restarted, ", "))
	}
	return nil
}

// readSecretValue reads the value from a file or standard input. It refuses a terminal, which would show the value.
func readSecretValue(sess *session.Session, cmd *cobra.Command, file string) ([]byte, error) {
	from, what := sess.Stdin, "standard input"
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("read the secret: %w", err)
		}
		defer f.Close()
		from, what = f, file
	} else if f, ok := sess.Stdin.(*os.File); ok && output.TerminalWidth(f) > 0 {
		return nil, &session.UsageError{
			Command: cmd.CommandPath(),
			Message: "standard input is a terminal, which would show the value: use --file or a pipe",
		}
	}
	value, err := io.ReadAll(io.LimitReader(from, int64(cluster.MaxSecret)+2))
	if err != nil {
		return nil, fmt.Errorf("read the secret: %w", err)
	}
	if len(value) == 0 {
		return nil, fmt.Errorf("read the secret: %s is empty", what)
	}
	return value, nil
}

// secretLsCommand is `berth secret ls`.
type secretLsCommand struct{ *session.Session }

func newSecretLsCommand(sess *session.Session) *cobra.Command {
	s := &secretLsCommand{sess}
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List secrets, without their values",
		Args: session.Arguments(0, 0, ""),
		RunE: sess.WithClient(s.run),
	}
}

func (s *secretLsCommand) run(ctx context.Context, c *client.Client, _ []string) error {
	all, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.SecretView], error) {
			return c.Secrets(ctx, s.ChosenCluster(), o)
		})
	if err != nil {
		return err
	}
	return session.PrintList(s.Session, all, "No secrets. Create one with 'berth secret set'.", s.table)
}

func (s *secretLsCommand) table(all []api.SecretView) output.Table {
	t := output.Table{Titles: []string{"SECRET", "CLUSTER", "TYPE", "VERSION>", "AGE>", "CHANGED>", "USED BY"}}
	for i := range all {
		v := &all[i]
		kind := string(v.Type)
		if v.Registry != "" {
			kind += " " + v.Registry
		}
		t.Add(v.Name, v.Cluster, kind, strconv.FormatUint(v.Version, 10), s.Age(v.Created),
			s.Age(v.Updated),
			strings.Join(v.Users, ", "))
	}
	return t
}

// secretRmCommand is `berth secret rm`.
type secretRmCommand struct {
	*session.Session
	force bool
}

func newSecretRmCommand(sess *session.Session) *cobra.Command {
	s := &secretRmCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "rm NAME...", Aliases: []string{"delete"}, Short: "Delete secrets",
		Args: session.Arguments(1, -1, "the name of a secret"),
		Long: "Deletes secrets. The command refuses to delete a secret that services, jobs or crons use, and names\n" +
			"them. --force deletes it anyway: running tasks keep the value, and new tasks wait until a secret of\n" +
			"this name exists again.",
		RunE: sess.WithClient(s.run),
	}
	cmd.Flags().BoolVar(&s.force, "force", false, "delete even a secret that is in use")
	return cmd
}

func (s *secretRmCommand) run(ctx context.Context, c *client.Client, args []string) error {
	in := s.ClusterOfChange()
	for _, name := range args {
		err := c.DeleteSecret(ctx, in, name, s.force, client.Condition{})
		if !s.force {
			err = session.HintOn(err, http.StatusConflict, "--force deletes it anyway.")
		}
		if err != nil {
			return session.HintOn(err, http.StatusNotFound,
				"'berth secret ls' lists the existing secrets; -n names another cluster.")
		}
		if !s.WantsData() {
			s.Printf("secret %s of cluster %s is deleted", name, in)
		}
	}
	return nil
}
