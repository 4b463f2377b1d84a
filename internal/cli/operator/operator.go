// Package operator implements the commands for operators of servers: tokens, keys, snapshots and recovery.
package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/serve/engines"
	"github.com/berthd/berth/internal/store"
)

// NewOperatorCommand returns `berth operator`, the commands about the control plane as a whole.
func NewOperatorCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "operator", Short: "Save, restore and examine the control plane", Args: cobra.ArbitraryArgs,
		RunE: sess.RunGroup,
	}
	snapshot := &cobra.Command{
		Use: "snapshot", Short: "Save, restore and inspect snapshots of the store",
		Args: cobra.ArbitraryArgs, RunE: sess.RunGroup,
	}
	snapshot.AddCommand(newSnapshotSaveCommand(sess), newSnapshotRestoreCommand(sess), newSnapshotInspectCommand(sess))
	silence := &cobra.Command{
		Use: "silence", Short: "Control the protection against a mass silence of nodes",
		Args: cobra.ArbitraryArgs, RunE: sess.RunGroup,
	}
	silence.AddCommand(newSilenceOverrideCommand(sess))
	cmd.AddCommand(snapshot, newRecoverCommand(sess), silence, newOperatorSecretsCommand(sess), newDebugCommand(sess))
	return cmd
}

func newSnapshotSaveCommand(sess *session.Session) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "save FILE", Short: "Save the store to a file",
		Long: "Saves the whole store to a file that only this user can read, because it contains complete\n" +
			"manifests. The file is complete or absent, and its contents are verified before the command\n" +
			"succeeds. \"-\" is standard output.",
		Args: session.Arguments(1, 1, "a file to write"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			if args[0] == "-" {
				_, err := c.Snapshot(cmd.Context(), sess.Stdout)
				return err
			}
			if _, err := os.Stat(args[0]); err == nil && !force {
				return &hinted.Error{
					Err:  fmt.Errorf("%s already exists", args[0]),
					Hint: "Name another file, or replace this one with --force.",
				}
			}
			info, err := saveSnapshot(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if !sess.WantsData() {
				sess.Printf("saved to %s", args[0])
			}
			printKeysNeeded(sess, &info)
			return printSnapshot(sess, info)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace an existing file")
	return cmd
}

// saveSnapshot writes a snapshot to a temporary file, checks it and moves it to the path.
func saveSnapshot(ctx context.Context, c *client.Client, path string) (info store.SnapshotInfo, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".berth-snapshot-")
	if err != nil {
		return info, fmt.Errorf("save the snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // incomplete
		}
	}()
	_, err = c.Snapshot(ctx, f)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return info, err
	}
	if info, err = readSnapshotInfo(f.Name()); err != nil {
		return info, err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return info, fmt.Errorf("save the snapshot: %w", err)
	}
	return info, nil
}

func readSnapshotInfo(path string) (store.SnapshotInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return store.SnapshotInfo{}, fmt.Errorf("read the snapshot: %w", err)
	}
	defer f.Close()
	info, err := engines.Inspect(f)
	if err != nil {
		return info, &hinted.Error{
			Err:  fmt.Errorf("read the snapshot: %s: %w", path, err),
			Hint: "Name a file that `berth operator snapshot save` or a server with --snapshot-dir wrote.",
		}
	}
	return info, nil
}

func newSnapshotInspectCommand(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "inspect FILE", Short: "Check a snapshot and show what it contains",
		Args: session.Arguments(1, 1, "a snapshot's file"),
		RunE: func(_ *cobra.Command, args []string) error {
			info, err := readSnapshotInfo(args[0])
			if err != nil {
				return err
			}
			return printSnapshot(sess, info)
		},
	}
}

// printSnapshot prints the content of a snapshot.
func printSnapshot(sess *session.Session, info store.SnapshotInfo) error {
	if sess.WantsData() {
		return sess.PrintData(info)
	}
	t := output.Table{Titles: []string{"", ""}}
	if !info.Taken.IsZero() {
		t.Add("newest record", info.Taken.UTC().Format(time.RFC3339))
	}
	t.Add("size", cluster.Bytes(info.Size).String())
	t.Add("revision", fmt.Sprint(info.Revision))
	for _, domain := range slices.Sorted(maps.Keys(info.Leaders)) {
		l := info.Leaders[domain]
		t.Add("domain", fmt.Sprintf("%s: incarnation %d, epoch %d", domain, l.Incarnation, l.Epoch))
	}
	var parts []string
	for _, noun := range slices.Sorted(maps.Keys(info.Nouns)) {
		parts = append(parts, fmt.Sprintf("%s %d", noun, info.Nouns[noun]))
	}
	t.Add("records", fmt.Sprintf("%d: %s", info.Keys, strings.Join(parts, ", ")))
	if len(info.Masters) > 0 {
		t.Add("secrets keys", strings.Join(info.Masters, ", ")+" (master keys that its secrets need)")
	}
	t.Add("sha256", info.Hash)
	return sess.PrintTable(t)
}

// parseAction reads the flags --adopt and --stop, of which exactly one must be set.
func parseAction(adopt, stop bool) (api.RecoveryAction, bool) {
	switch {
	case adopt && !stop:
		return api.RecoverAdopt, true
	case stop && !adopt:
		return api.RecoverStop, true
	}
	return "", false
}

const (
	adoptUsage = "keep tasks that run on nodes but are unknown to the store, if their owner still " +
		"wants them"
	stopUsage = "stop tasks that run on nodes but are unknown to the store"
)

func newRecoverCommand(sess *session.Session) *cobra.Command {
	var adopt, stop bool
	cmd := &cobra.Command{
		Use: "recover --adopt|--stop", Short: "Adopt or stop tasks that the store does not know",
		Long: "Decides what happens to tasks that run on nodes but are unknown to the store. This is needed after a\n" +
			"snapshot was restored, or after the store lost data outside Berth's control. Until then nothing is\n" +
			"placed or stopped.",
		Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			action, ok := parseAction(adopt, stop)
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			now, err := c.Recovery(cmd.Context())
			if err != nil {
				return err
			}
			if !ok {
				return &session.UsageError{
					Command: cmd.CommandPath(),
					Message: "want exactly one of --adopt and --stop" + recoveryCause(now),
				}
			}
			v, err := c.Recover(cmd.Context(), action)
			if err != nil {
				return err
			}
			if sess.WantsData() {
				return sess.PrintData(v)
			}
			word := map[api.RecoveryAction]string{
				api.RecoverAdopt: "kept if their owner still wants them",
				api.RecoverStop:  "stopped",
			}[action]
			sess.Printf("tasks that the store does not know are %s; the store's incarnation is %d", word, v.Incarnation)
			return nil
		},
	}
	cmd.Flags().BoolVar(&adopt, "adopt", false, adoptUsage)
	cmd.Flags().BoolVar(&stop, "stop", false, stopUsage)
	return cmd
}

// recoveryCause tells why a recovery is needed, or that none is.
func recoveryCause(v api.RecoveryView) string {
	if !v.Needed || v.Recovery == nil {
		return "; no recovery is needed now"
	}
	return ": " + v.Recovery.Cause
}

func newSilenceOverrideCommand(sess *session.Session) *cobra.Command {
	var during time.Duration
	cmd := &cobra.Command{
		Use: "override --for DURATION", Short: "Replace tasks of silent nodes during a mass silence",
		Long: "If more than 30 % of ten or more nodes become silent within a minute, their tasks are not replaced,\n" +
			"because the network is the likelier fault. This command allows the replacement for a while. --for 0s\n" +
			"ends the override.",
		Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("for") || during < 0 {
				return &session.UsageError{
					Command: cmd.CommandPath(),
					Message: "want --for DURATION, such as --for 10m",
				}
			}
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			v, err := c.Reschedule(cmd.Context(), during)
			if err != nil {
				return err
			}
			switch {
			case sess.WantsData():
				return sess.PrintData(v)
			case during == 0:
				sess.Printf("the override has ended: during a mass silence, tasks of silent nodes are not replaced")
			default:
				sess.Printf("tasks of silent nodes are replaced until %s", v.RescheduleUntil.UTC().Format(time.RFC3339))
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&during, "for", 0, "duration; 0s ends the override")
	return cmd
}
