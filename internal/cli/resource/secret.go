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
		Use: "secret", Aliases: []string{"secrets"}, Short: "Manage passwords, keys and certificates for tasks",
		Args: cobra.ArbitraryArgs, RunE: sess.RunGroup,
		Long: "Secrets are values for the tasks of a cluster. Tasks get them in files in memory or in variables.\n" +
			"They cannot be read back. The store holds them encrypted. A container names the secrets that it\n" +
			"needs: `secrets: [{secret: db-password, file: /run/secrets/db}]`.",
	}
	cmd.AddCommand(newSecretSetCommand(sess), newSecretLsCommand(sess), newSecretRmCommand(sess))
	return cmd
}

func newSecretSetCommand(sess *session.Session) *cobra.Command {
	var in, file, kind string
	var keep bool
	var w api.SecretWrite
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Create or change a secret",
		Long: "Creates a secret or changes its value. The command reads the value from standard input or from\n" +
			"--file, never from an argument, because other users of the machine can see arguments. It removes one\n" +
			"newline at the end, unless you give --keep-newline.\n\n" +
			"The files of running tasks are replaced immediately. Each use of a secret defines what else happens\n" +
			"(on_change): some services restart, according to their update policies. With --type registry the\n" +
			"value is the password of --username for the images of --registry.",
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
				sess.Printf("services that restart because of the change: %s", strings.Join(v.Restarted, ", "))
			}
			return nil
		},
	}
	sess.AddClusterFlag(cmd, &in)
	f := cmd.Flags()
	f.StringVar(&file, "file", "", "`FILE` with the value; default standard input")
	f.BoolVar(&keep, "keep-newline", false, "keep a newline at the end of the value")
	f.StringVar(&kind, "type", string(cluster.SecretValue), "value or registry")
	f.StringVar(&w.Registry, "registry", "", "the `HOST[:PORT]` of the registry, with --type registry")
	f.StringVar(&w.Username, "username", "", "user name at the registry, with --type registry")
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
				Message: "standard input is a terminal, which would show the value: use --file or a pipe",
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
				sess.Messagef("No secrets. Create one with 'berth secret set'.")
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
	cmd.Flags().StringVar(&in, "cluster", "", "only secrets of this `cluster`")
	sess.CompleteFlags(cmd, map[string]string{"cluster": wording.KindCluster})
	return cmd
}

func newSecretRmCommand(sess *session.Session) *cobra.Command {
	var in string
	var force bool
	cmd := &cobra.Command{
		Use: "rm NAME...", Aliases: []string{"delete"}, Short: "Delete secrets",
		Args: session.Arguments(1, -1, "the name of a secret"),
		Long: "Deletes secrets. The command refuses to delete a secret that services, jobs or crons use, and names\n" +
			"them. --force deletes it anyway: running tasks keep the value, and new tasks wait until a secret of\n" +
			"this name exists again.",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			for _, name := range args {
				err := c.DeleteSecret(cmd.Context(), in, name, force, client.Condition{})
				switch {
				case client.StatusOf(err) == 409 && !force:
					return &hinted.Error{Err: err, Hint: "--force deletes it anyway."}
				case client.StatusOf(err) == http.StatusNotFound:
					return &hinted.Error{
						Err:  err,
						Hint: "'berth secret ls' lists the existing secrets; --cluster names another cluster.",
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
	cmd.Flags().BoolVar(&force, "force", false, "delete even a secret that is in use")
	return cmd
}
