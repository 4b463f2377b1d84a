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
	"github.com/berthd/berth/internal/store/etcd"
	"github.com/berthd/berth/internal/wording"
)

// newOperatorSecretsCommand returns `berth operator secrets`.
func newOperatorSecretsCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "secrets", Short: "Look after the keys that secrets are sealed with", Args: cobra.ArbitraryArgs,
		RunE: sess.RunGroup,
		Long: "Secrets are sealed with a data key, which stands in the store wrapped by a master key; that " +
			"is in the file " + secrets.File + " of every server and\n" +
			"nowhere else. rotate-key replaces the data key, rekey both.",
	}
	cmd.AddCommand(newRotateKeyCommand(sess), newRekeyCommand(sess), newMasterKeysCommand(sess),
		newDropKeyCommand(sess))
	return cmd
}

func newRotateKeyCommand(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "rotate-key", Short: "Seal all secrets with another data key", Args: session.Arguments(0, 0, ""),
		Long: "Makes another data key, seals all secrets with it and drops the older ones; tasks notice " +
			"nothing of it. If it is interrupted, the leader\n" +
			"completes it. Snapshots of before keep the older keys. The master key, in the file " + secrets.File +
			" of the servers, stays as it is:\n" +
			"`berth operator secrets rekey` replaces it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			v, err := c.RotateSecretsKey(cmd.Context())
			if err != nil {
				return err
			}
			if sess.WantsData() {
				return sess.PrintData(v)
			}
			sess.Printf("%s sealed with key %s; older keys that are gone: %d", wording.Count(v.Sealed, "secret"), v.Key,
				v.Dropped)
			return nil
		},
	}
}

func newRekeyCommand(sess *session.Session) *cobra.Command {
	var detach, drop bool
	cmd := &cobra.Command{
		Use: "rekey", Short: "Replace the master key of the secrets on all servers", Args: session.Arguments(0, 0, ""),
		Long: "Makes another master key, hands it to all servers, and seals all secrets anew under it. " +
			"Tasks notice nothing of it. Nothing is sealed with the\n" +
			"new key before every server has it; a server that is down is waited for, or taken out with " +
			"`berth server remove`. The leader carries it\n" +
			"out, whoever is interrupted or dies; this command only shows how far it is, and done again it " +
			"shows that again.\n\n" +
			"The older key is kept in the file " + secrets.File +
			" of the servers, as snapshots of before are of no use without it; --drop, or afterwards\n" +
			"`berth operator secrets drop-key`, takes it out. Copy that file anew when it is done.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if detach && drop {
				return &session.UsageError{
					Command: cmd.CommandPath(),
					Message: "--drop waits for the end, and --detach does not: want only one of them",
				}
			}
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			v, err := c.RekeySecrets(cmd.Context())
			if err != nil {
				return err
			}
			word := "is made"
			if !v.Began {
				word = "is on its way already"
			}
			if detach {
				if sess.WantsData() {
					return sess.PrintData(v)
				}
				sess.Printf("master key %s %s; 'berth operator secrets keys' shows how far it is", v.ID, word)
				return nil
			}
			sess.Messagef("master key %s %s", v.ID, word)
			all, err := awaitRekey(cmd.Context(), sess, c, v.ID)
			if err != nil {
				if cmd.Context().Err() != nil {
					sess.Messagef("Stopped waiting; it goes on. See 'berth operator secrets keys'.")
				}
				return err
			}
			return printRekeyResult(cmd.Context(), sess, c, v.ID, all, drop)
		},
	}
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "do not wait for its end")
	cmd.Flags().BoolVar(&drop, "drop", false,
		"take the older keys out of the servers' files at the end; snapshots of before are then of no use "+
			"without a copy of them")
	return cmd
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
		return "", false, fmt.Errorf("the master key %s is gone again: no server that is left had it. Do it again", id)
	}
	switch v := &all[i]; v.State {
	case api.MasterHandedOut:
		if len(v.Lacking) == 0 {
			return "all servers have it", false, nil
		}
		return fmt.Sprintf("%s of %d have it; it is not used before %s, too. A server gets it by itself "+
				"once it runs and reaches another one; one that never comes back: 'berth server remove'",
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
		return fmt.Sprintf("%d of %s sealed anew", v.Secrets, wording.Count(v.Secrets+left, "secret")), false, nil
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
			sess.Messagef("master key %s is dropped", all[i].ID)
		case all[i].State == api.MasterKept:
			kept = append(kept, all[i].ID)
		case all[i].ID == id:
			now = all[i]
		}
	}
	if sess.WantsData() {
		return sess.PrintData(now)
	}
	sess.Printf("%s sealed under the master key %s, which all servers have", wording.Count(now.Secrets, "secret"), id)
	sess.Messagef("Copy the file %s of a server anew, and keep it apart from snapshots.", secrets.File)
	for _, key := range kept {
		sess.Messagef("The older key %s is kept for snapshots of before. Once those are not wanted any more: "+
			"'berth operator secrets drop-key %s'.", key, key)
	}
	return nil
}

func newMasterKeysCommand(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "keys", Short: "List the master keys of the secrets, by their ids", Args: session.Arguments(0, 0, ""),
		Long: "Lists the master keys of the secrets: which one is used, what is sealed under it, and which " +
			"servers have it. A key that is handed-out is used once\n" +
			"every server has it; secrets under one that is replaced are being sealed anew; one that is " +
			"kept is needed by snapshots of before only.\n" +
			"The keys themselves are told to nobody.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			all, err := c.MasterKeys(cmd.Context())
			if err != nil {
				return err
			}
			if sess.WantsData() {
				return sess.PrintData(output.EmptyIfNil(all))
			}
			t := output.Table{Titles: []string{"KEY", "STATE", "SECRETS>", "AGE>", "ON", "NOT ON"}}
			for i := range all {
				v := &all[i]
				age := ""
				if !v.Created.IsZero() {
					age = sess.Age(v.Created)
				}
				t.Add(v.ID, string(v.State), strconv.Itoa(v.Secrets), age, strings.Join(v.Holders, ", "),
					strings.Join(v.Lacking, ", "))
			}
			return sess.PrintTable(t)
		},
	}
}

func newDropKeyCommand(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "drop-key KEY", Short: "Take a master key that nothing needs any more off all servers",
		Args: session.Arguments(1, 1, "the id of a key, from `berth operator secrets keys`"),
		Long: "Has every server take a master key out of its file " + secrets.File +
			", one that is down when it is back. A key that something in the store is sealed\n" +
			"under is refused. Snapshots that were taken before it was replaced can be restored only with a " +
			"copy of it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			if err := c.DropMasterKey(cmd.Context(), args[0]); err != nil {
				return err
			}
			if !sess.WantsData() {
				sess.Printf("master key %s is dropped: each server takes it out of its file", args[0])
			}
			return nil
		},
	}
}

// countSecrets returns the number of secrets in a snapshot.
func countSecrets(info *etcd.SnapshotInfo) int { return info.Nouns["secret"] }

// masterKeysText names the master keys that the secrets of a snapshot need. The text begins with a blank.
func masterKeysText(info *etcd.SnapshotInfo) string {
	if len(info.Masters) == 0 {
		return ""
	}
	return " with the key " + strings.Join(info.Masters, " and ")
}

// printKeysNeeded tells which key file the secrets of a saved snapshot need.
func printKeysNeeded(sess *session.Session, info *etcd.SnapshotInfo) {
	if n := countSecrets(info); n > 0 {
		sess.Messagef("It holds %s, sealed: to use them after a restore takes the file %s of a server's data "+
			"directory%s. Keep a copy of that file, apart from the snapshots.",
			wording.Count(n, "secret"), secrets.File, masterKeysText(info))
	}
}

// printKeysMissing tells whether the data directory has the keys for the secrets of a restored snapshot.
func printKeysMissing(sess *session.Session, info *etcd.SnapshotInfo, dataDir string) {
	if countSecrets(info) == 0 {
		return
	}
	path := filepath.Join(dataDir, secrets.File)
	ids, err := secrets.FileIDs(dataDir)
	if errors.Is(err, fs.ErrNotExist) {
		sess.Messagef("The snapshot holds %s, and %s is missing: put the copy that was kept there before the "+
			"server starts%s. Without it they have to be set anew.",
			wording.Count(countSecrets(info), "secret"), path, masterKeysText(info))
		return
	}
	if err != nil {
		sess.Messagef("The snapshot holds %s, and the file with their key is not in order: %v",
			wording.Count(countSecrets(info), "secret"), err)
		return
	}
	for _, id := range info.Masters {
		if !slices.Contains(ids, id) {
			sess.Messagef("The snapshot holds %s that need the key %s, and %s holds %s: add the line of the copy "+
				"that was kept when the snapshot was taken. Without it they have to be set anew.",
				wording.Count(countSecrets(info), "secret"), id, path, strings.Join(ids, ", "))
			return
		}
	}
	sess.Messagef("The snapshot holds %s: they are opened with %s, which has the key.",
		wording.Count(countSecrets(info), "secret"), path)
}
