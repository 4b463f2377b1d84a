package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/wait"
	"github.com/berthd/berth/internal/secrets"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/wording"
)

// newOperatorSecretsCommand returns `berth operator secrets`.
func newOperatorSecretsCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "secrets", Short: "Manage the keys that encrypt secrets", Args: cobra.ArbitraryArgs,
		RunE: session.RunGroup,
		Long: "Secrets are encrypted with a data key. The store holds the data key, encrypted with a master key.\n" +
			"The master key is only in the file " + secrets.File + " of each server. rotate-key replaces the data\n" +
			"key; rekey replaces both keys.",
	}
	cmd.AddCommand(newRotateKeyCommand(sess), newRekeyCommand(sess), newMasterKeysCommand(sess),
		newDropKeyCommand(sess))
	return cmd
}

// rotateKeyCommand is `berth operator secrets rotate-key`.
type rotateKeyCommand struct{ *session.Session }

func newRotateKeyCommand(sess *session.Session) *cobra.Command {
	r := &rotateKeyCommand{sess}
	return &cobra.Command{
		Use: "rotate-key", Short: "Encrypt all secrets with a new data key", Args: session.Arguments(0, 0, ""),
		Long: "Creates a new data key, encrypts all secrets with it and removes the older data keys. Running tasks\n" +
			"are not affected. If the command is interrupted, the leader completes the change. Older snapshots\n" +
			"still contain the older data keys. The master key in the file " + secrets.File + " of the servers does\n" +
			"not change: `berth operator secrets rekey` replaces it.",
		RunE: sess.WithClient(r.run),
	}
}

func (r *rotateKeyCommand) run(ctx context.Context, c *client.Client, _ []string) error {
	v, err := c.RotateSecretsKey(ctx)
	if err != nil {
		return err
	}
	if r.WantsData() {
		return r.PrintData(v)
	}
	r.Printf("%s encrypted with data key %s; older keys removed: %d",
		wording.Count(v.Sealed, "secret"), v.Key, v.Dropped)
	return nil
}

// rekeyCommand is `berth operator secrets rekey`.
type rekeyCommand struct {
	*session.Session
	detach, drop bool
}

func newRekeyCommand(sess *session.Session) *cobra.Command {
	r := &rekeyCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "rekey", Short: "Replace the master key of the secrets on all servers", Args: session.Arguments(0, 0, ""),
		Long: "Creates a new master key, distributes it to all servers, and encrypts all secrets again under it.\n" +
			"Running tasks are not affected. The new key is used only after every server has it. If a server is\n" +
			"down, start it, or remove it with `berth server remove`. The leader completes it even if this\n" +
			"command stops. Run the command again to see the progress.\n\n" +
			"The older key stays in the file " + secrets.File + " of the servers. Older snapshots need this key.\n" +
			"--drop, or later `berth operator secrets drop-key`, removes it. Back up that file again after the\n" +
			"change.",
		RunE: r.run,
	}
	cmd.Flags().BoolVarP(&r.detach, "detach", "d", false, "do not wait for its end")
	cmd.Flags().BoolVar(&r.drop, "drop", false,
		"remove the older keys from the servers' files at the end; older snapshots then need "+
			"a backup of these keys")
	return cmd
}

func (r *rekeyCommand) run(cmd *cobra.Command, _ []string) error {
	if r.detach && r.drop {
		return &session.UsageError{
			Command: cmd.CommandPath(),
			Message: "--drop and --detach exclude each other: --drop waits for the end, --detach does not",
		}
	}
	c, err := r.Connect()
	if err != nil {
		return err
	}
	v, err := c.RekeySecrets(cmd.Context())
	if err != nil {
		return err
	}
	word := "is created"
	if !v.Began {
		word = "is being distributed already"
	}
	if r.detach {
		if r.WantsData() {
			return r.PrintData(v)
		}
		r.Printf("master key %s %s; 'berth operator secrets keys' shows the progress", v.ID, word)
		return nil
	}
	r.Messagef("master key %s %s", v.ID, word)
	all, err := awaitRekey(cmd.Context(), r.Session, c, v.ID)
	if err != nil {
		return r.StoppedWaiting(cmd.Context(), err,
			"the leader continues to encrypt. See 'berth operator secrets keys'.")
	}
	return printRekeyResult(cmd.Context(), r.Session, c, v.ID, all, r.drop)
}

// awaitRekey shows the progress until all secrets are sealed under the new master key. It returns all master keys.
func awaitRekey(ctx context.Context, sess *session.Session, c *client.Client, id string) (all []api.MasterKeyView,
	err error,
) {
	shown := ""
	loop := wait.Loop{
		Session: sess,
		Read: func(ctx context.Context) (bool, error) {
			now, err := c.MasterKeys(ctx)
			if err != nil {
				return true, err
			}
			all = now
			text, done, err := rekeyProgress(all, id)
			if err == nil && !done && text != shown {
				sess.Messagef("%s", text)
				shown = text
			}
			return !done, err
		},
	}
	return all, loop.Run(ctx)
}

// rekeyProgress describes the progress of a rekey. It returns an error if the new key was dropped.
func rekeyProgress(all []api.MasterKeyView, id string) (text string, done bool, err error) {
	i := slices.IndexFunc(all, func(v api.MasterKeyView) bool { return v.ID == id })
	if i < 0 || all[i].State == api.MasterDropped {
		return "", false, fmt.Errorf("the master key %s was lost: none of the remaining servers has it. Run the "+
			"command again", id)
	}
	switch v := &all[i]; v.State {
	case api.MasterHandedOut:
		if len(v.Lacking) == 0 {
			return "all servers have it", false, nil
		}
		return fmt.Sprintf("%s of %d have it; it is used once %s have it too. A server gets it when it runs and "+
				"reaches another server. Remove a server that never returns with 'berth server remove'",
				wording.Count(len(v.Holders), "server"), len(v.Holders)+len(v.Lacking), strings.Join(v.Lacking, ", ")),
			false, nil
	case api.MasterInUse:
		left := 0
		open := false
		for j := range all {
			if all[j].State == api.MasterReplaced {
				left, open = left+all[j].Secrets, true
			}
		}
		if !open {
			return "", true, nil
		}
		return fmt.Sprintf("%d of %s encrypted again", v.Secrets, wording.Count(v.Secrets+left, "secret")), false, nil
	default: // another key replaces it already
		return "", true, nil
	}
}

// printRekeyResult prints the result and the next steps.
func printRekeyResult(ctx context.Context, sess *session.Session, c *client.Client, id string, all []api.MasterKeyView,
	drop bool,
) error {
	var kept []string
	var now api.MasterKeyView
	for i := range all {
		switch {
		case all[i].State == api.MasterKept && drop:
			if err := c.DropMasterKey(ctx, all[i].ID); err != nil {
				return err
			}
			sess.Messagef("master key %s is removed", all[i].ID)
		case all[i].State == api.MasterKept:
			kept = append(kept, all[i].ID)
		case all[i].ID == id:
			now = all[i]
		}
	}
	if sess.WantsData() {
		return sess.PrintData(now)
	}
	sess.Printf("%s encrypted under the master key %s, which all servers have",
		wording.Count(now.Secrets, "secret"), id)
	sess.Messagef("Back up the file %s of a server again, and keep the backup apart from snapshots.", secrets.File)
	for _, key := range kept {
		sess.Messagef("The older key %s is kept for older snapshots. When you no longer need those "+
			"snapshots, remove it with 'berth operator secrets drop-key %s'.", key, key)
	}
	return nil
}

// masterKeysCommand is `berth operator secrets keys`.
type masterKeysCommand struct{ *session.Session }

func newMasterKeysCommand(sess *session.Session) *cobra.Command {
	m := &masterKeysCommand{sess}
	return &cobra.Command{
		Use: "keys", Short: "List the master keys of the secrets", Args: session.Arguments(0, 0, ""),
		Long: "Lists the master keys of the secrets: their state, how many secrets each encrypts, and which servers\n" +
			"have it. A handed-out key is used once every server has it. Secrets under a replaced key are being\n" +
			"encrypted again. Only older snapshots need a kept key.\n" +
			"The command never shows the keys.",
		RunE: sess.WithClient(m.run),
	}
}

func (m *masterKeysCommand) run(ctx context.Context, c *client.Client, _ []string) error {
	all, err := c.MasterKeys(ctx)
	if err != nil {
		return err
	}
	if m.WantsData() {
		return m.PrintData(output.EmptyIfNil(all))
	}
	t := output.Table{Titles: []string{"KEY", "STATE", "SECRETS>", "AGE>", "ON", "NOT ON"}}
	for i := range all {
		v := &all[i]
		age := ""
		if !v.Created.IsZero() {
			age = m.Age(v.Created)
		}
		t.Add(v.ID, string(v.State), strconv.Itoa(v.Secrets), age, strings.Join(v.Holders, ", "),
			strings.Join(v.Lacking, ", "))
	}
	return m.PrintTable(t)
}

// dropKeyCommand is `berth operator secrets drop-key`.
type dropKeyCommand struct{ *session.Session }

func newDropKeyCommand(sess *session.Session) *cobra.Command {
	d := &dropKeyCommand{sess}
	return &cobra.Command{
		Use: "drop-key KEY", Short: "Remove a master key that is no longer needed from all servers",
		Args: session.Arguments(1, 1, "the id of a key, from `berth operator secrets keys`"),
		Long: "Removes a master key from the file " + secrets.File + " of every server; a server that is down " +
			"does so\n" +
			"when it returns. The command is refused while something in the store is encrypted under the key. A\n" +
			"snapshot from before the key was replaced can be restored only with a backup of the key.",
		RunE: sess.WithClient(d.run),
	}
}

func (d *dropKeyCommand) run(ctx context.Context, c *client.Client, args []string) error {
	if err := c.DropMasterKey(ctx, args[0]); err != nil {
		return err
	}
	if !d.WantsData() {
		d.Printf("master key %s is dropped: each server removes it from its file", args[0])
	}
	return nil
}

// countSecrets returns the number of secrets in a snapshot.
func countSecrets(info *store.SnapshotInfo) int { return info.Nouns["secret"] }

// masterKeysText names the master keys that the secrets of a snapshot need. The text begins with a blank.
func masterKeysText(info *store.SnapshotInfo) string {
	if len(info.Masters) == 0 {
		return ""
	}
	return " with the key " + strings.Join(info.Masters, " and ")
}

// printKeysNeeded prints which key file the secrets of a saved snapshot need.
func printKeysNeeded(sess *session.Session, info *store.SnapshotInfo) {
	if n := countSecrets(info); n > 0 {
		sess.Messagef("The snapshot holds %s, encrypted. To use them after a restore you need the file %s "+
			"of a server's data directory%s. Keep a backup of that file, apart from the snapshots.",
			wording.Count(n, "secret"), secrets.File, masterKeysText(info))
	}
}

// printKeysMissing prints whether the data directory has the keys for the secrets of a restored snapshot.
func printKeysMissing(sess *session.Session, info *store.SnapshotInfo, dataDir string) {
	if countSecrets(info) == 0 {
		return
	}
	path := filepath.Join(dataDir, secrets.File)
	ids, err := secrets.FileIDs(dataDir)
	if errors.Is(err, fs.ErrNotExist) {
		sess.Messagef("The snapshot holds %s, but %s is missing. Put your backup of the file there before "+
			"the server starts%s. Without it the secrets must be set again.",
			wording.Count(countSecrets(info), "secret"), path, masterKeysText(info))
		return
	}
	if err != nil {
		sess.Messagef("The snapshot holds %s, but the file with their key cannot be used: %v",
			wording.Count(countSecrets(info), "secret"), err)
		return
	}
	for _, id := range info.Masters {
		if !slices.Contains(ids, id) {
			sess.Messagef("The snapshot holds %s, encrypted with the key %s, but %s holds %s. Add the line from the "+
				"backup of the time of the snapshot. Without it the secrets must be set again.",
				wording.Count(countSecrets(info), "secret"), id, path, strings.Join(ids, ", "))
			return
		}
	}
	sess.Messagef("The snapshot holds %s. %s has the key that decrypts them.",
		wording.Count(countSecrets(info), "secret"), path)
}
