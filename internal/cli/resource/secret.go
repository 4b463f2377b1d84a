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
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/wording"
)

// NewSecretCommand returns the command `berth secret`.
func NewSecretCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "secret", Aliases: []string{"secrets"}, Short: "Keep passwords, keys and certificates for tasks, sealed",
		Args: cobra.ArbitraryArgs, RunE: sess.RunGroup,
		Long: "Secrets are values that tasks of their cluster are handed, in files in memory or in " +
			"variables, and that nobody reads back. They stand\n" +
			"sealed in the store; a container asks for one by its name: `secrets: [{secret: db-password, " +
			"file: /run/secrets/db}]`.",
	}
	cmd.AddCommand(newSecretSetCommand(sess), newSecretLsCommand(sess), newSecretRmCommand(sess))
	return cmd
}

func newSecretSetCommand(sess *session.Session) *cobra.Command {
	var in, file, kind string
	var keep bool
	var w api.SecretWrite
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Make a secret or give it another value, read from standard input or a file",
		Long: "Makes a secret, or gives one that is there another value. The value is read from standard " +
			"input or --file, never from an argument: other\n" +
			"users of a machine see those. One new line at its end is left out, unless --keep-newline says " +
			"otherwise.\n\n" +
			"Files of tasks that run are replaced at once; what else follows each use says (on_change): " +
			"services that are to be restarted for it are,\n" +
			"by their update policies. With --type registry the value is the password of --username for the " +
			"images of --registry.",
		Args: session.Arguments(1, 1, "a name for the secret"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w.Type = cluster.SecretType(kind)
			value, err := readSecretValue(sess, cmd, file)
			if err != nil {
				return err
			}
			if !keep {
				value = bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r"))
			}
			w.Value = base64.StdEncoding.EncodeToString(value)
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			v, err := c.PutSecret(cmd.Context(), in, args[0], w, client.Condition{})
			if err != nil {
				return err
			}
			if sess.WantsData() {
				return sess.PrintData(v)
			}
			sess.Printf("secret %s of cluster %s has version %d", v.Name, v.Cluster, v.Version)
			if len(v.Restarted) > 0 {
				sess.Printf("services that are restarted for it: %s", strings.Join(v.Restarted, ", "))
			}
			return nil
		},
	}
	sess.AddClusterFlag(cmd, &in)
	f := cmd.Flags()
	f.StringVar(&file, "file", "", "`FILE` with the value; default standard input")
	f.BoolVar(&keep, "keep-newline", false, "a new line at the end is part of the value")
	f.StringVar(&kind, "type", string(cluster.SecretValue), "value or registry")
	f.StringVar(&w.Registry, "registry", "", "the `HOST[:PORT]` that the images are fetched from, with --type registry")
	f.StringVar(&w.Username, "username", "", "whose password the value is, with --type registry")
	return cmd
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
	} else if f, ok := sess.Stdin.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return nil, &session.UsageError{
				Command: cmd.CommandPath(),
				Message: "the value comes from standard input or --file, and this is a terminal, which would show " +
					"it: give it a file or a pipe",
			}
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

func newSecretLsCommand(sess *session.Session) *cobra.Command {
	var in string
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List secrets, without their values",
		Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			all, _, err := client.All(cmd.Context(), client.ListOptions{},
				func(ctx context.Context, o client.ListOptions) (api.Page[api.SecretView], error) {
					return c.Secrets(ctx, in, o)
				})
			if err != nil {
				return err
			}
			if sess.WantsData() {
				return sess.PrintData(output.EmptyIfNil(all))
			}
			if len(all) == 0 {
				sess.Messagef("No secrets. 'berth secret set' makes one.")
				return nil
			}
			t := output.Table{Titles: []string{"SECRET", "CLUSTER", "TYPE", "VERSION>", "AGE>", "CHANGED>", "USED BY"}}
			for i := range all {
				v := &all[i]
				kind := string(v.Type)
				if v.Registry != "" {
					kind += " " + v.Registry
				}
				t.Add(v.Name, v.Cluster, kind, strconv.FormatUint(v.Version, 10), sess.Age(v.Created),
					sess.Age(v.Updated),
					strings.Join(v.Users, ", "))
			}
			return sess.PrintTable(t)
		},
	}
	cmd.Flags().StringVar(&in, "cluster", "", "only those of this `cluster`")
	sess.CompleteFlags(cmd, map[string]string{"cluster": wording.KindCluster})
	return cmd
}

func newSecretRmCommand(sess *session.Session) *cobra.Command {
	var in string
	var force bool
	cmd := &cobra.Command{
		Use: "rm NAME...", Aliases: []string{"delete"}, Short: "Delete secrets",
		Args: session.Arguments(1, -1, "the name of a secret"),
		Long: "Deletes secrets. One that services, jobs or crons use is kept, and they are named; --force " +
			"deletes it all the same: tasks that run keep\n" +
			"what they have, and the next ones wait until there is a secret of the name again.",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			for _, name := range args {
				err := c.DeleteSecret(cmd.Context(), in, name, force, client.Condition{})
				switch {
				case client.StatusOf(err) == 409 && !force:
					return &hinted.Error{Err: err, Hint: "With --force it is deleted all the same."}
				case client.StatusOf(err) == http.StatusNotFound:
					return &hinted.Error{
						Err: err,
						Hint: "'berth secret ls' lists those that there are; --cluster names " +
							"another cluster.",
					}
				case err != nil:
					return err
				case !sess.WantsData():
					sess.Printf("secret %s of cluster %s is deleted", name, in)
				}
			}
			return nil
		},
	}
	sess.AddClusterFlag(cmd, &in)
	cmd.Flags().BoolVar(&force, "force", false, "even where something uses it")
	return cmd
}
