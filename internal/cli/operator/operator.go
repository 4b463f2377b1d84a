// Package operator implements the commands for operators of servers: tokens, keys, snapshots and recovery.
package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/snapshotfile"
)

// NewOperatorCommand returns `berth operator`, the commands about the control plane as a whole.
func NewOperatorCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "operator", Short: "Save, restore and examine the control plane", Args: cobra.ArbitraryArgs,
		RunE: session.RunGroup,
	}
	snapshot := &cobra.Command{
		Use: "snapshot", Short: "Save, restore and inspect snapshots of the store",
		Args: cobra.ArbitraryArgs, RunE: session.RunGroup,
	}
	snapshot.AddCommand(newSnapshotSaveCommand(sess), newSnapshotRestoreCommand(sess), newSnapshotInspectCommand(sess))
	silence := &cobra.Command{
		Use: "silence", Short: "Control what happens when many nodes fall silent at once",
		Args: cobra.ArbitraryArgs, RunE: session.RunGroup,
	}
	silence.AddCommand(newSilenceOverrideCommand(sess))
	cmd.AddCommand(snapshot, newRecoverCommand(sess), silence, newOperatorSecretsCommand(sess), newDebugCommand(sess),
		newTestSchedulerCommand(sess))
	return cmd
}

// snapshotSaveCommand is `berth operator snapshot save`.
type snapshotSaveCommand struct {
	*session.Session
	force bool
}

func newSnapshotSaveCommand(sess *session.Session) *cobra.Command {
	s := &snapshotSaveCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "save FILE", Short: "Save the store to a file",
		Long: "Saves the whole store to a file that only this user can read, because it contains complete\n" +
			"manifests. The file is complete or absent, and its contents are verified before the command\n" +
			"succeeds. \"-\" is standard output.",
		Args: session.Arguments(1, 1, "a file to write"),
		RunE: sess.WithClient(s.run),
	}
	cmd.Flags().BoolVar(&s.force, "force", false, "replace an existing file")
	return cmd
}

func (s *snapshotSaveCommand) run(ctx context.Context, c *client.Client, args []string) error {
	if args[0] == "-" {
		_, err := c.Snapshot(ctx, s.Stdout)
		return err
	}
	if _, err := os.Stat(args[0]); err == nil && !s.force {
		return &hinted.Error{
			Err:  fmt.Errorf("%s already exists", args[0]),
			Hint: "Name another file, or replace this one with --force.",
		}
	}
	info, err := saveSnapshot(ctx, c, args[0])
	if err != nil {
		return err
	}
	if !s.WantsData() {
		s.Printf("saved to %s", args[0])
	}
	printKeysNeeded(s.Session, &info)
	return printSnapshot(s.Session, info)
}

// downloadAttempts limits how often a snapshot that was cut short is downloaded from its start.
const downloadAttempts = 3

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
	err = download(ctx, c, f)
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

// download writes a snapshot of the server to an empty file. It begins again if the snapshot was cut short: the store
// dropped the revision that the server was reading, or the connection broke. A file that cannot be written is an error
// at once.
func download(ctx context.Context, c *client.Client, f *os.File) error {
	for n := 1; ; n++ {
		_, err := c.Snapshot(ctx, f)
		if local, ok := errors.AsType[*fs.PathError](err); ok {
			return fmt.Errorf("save the snapshot: %w", local)
		}
		if n == downloadAttempts || !errors.Is(err, client.ErrCutShort) {
			return err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("save the snapshot: %w", err)
		}
		if err := f.Truncate(0); err != nil {
			return fmt.Errorf("save the snapshot: %w", err)
		}
	}
}

func readSnapshotInfo(path string) (store.SnapshotInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return store.SnapshotInfo{}, fmt.Errorf("read the snapshot: %w", err)
	}
	defer f.Close()
	info, err := snapshotfile.Inspect(f)
	if err != nil {
		return info, &hinted.Error{
			Err:  fmt.Errorf("read the snapshot: %s: %w", path, err),
			Hint: "Name a file that `berth operator snapshot save` or a server with --snapshot-dir wrote.",
		}
	}
	return info, nil
}

// snapshotInspectCommand is `berth operator snapshot inspect`.
type snapshotInspectCommand struct{ *session.Session }

func newSnapshotInspectCommand(sess *session.Session) *cobra.Command {
	s := &snapshotInspectCommand{sess}
	return &cobra.Command{
		Use: "inspect FILE", Short: "Check a snapshot and show what it contains",
		Args: session.Arguments(1, 1, "a snapshot's file"),
		RunE: s.run,
	}
}

func (s *snapshotInspectCommand) run(_ *cobra.Command, args []string) error {
	info, err := readSnapshotInfo(args[0])
	if err != nil {
		return err
	}
	return printSnapshot(s.Session, info)
}

// printSnapshot prints the content of a snapshot.
func printSnapshot(sess *session.Session, info store.SnapshotInfo) error {
	if sess.WantsData() {
		return sess.PrintData(info)
	}
	t := output.Table{Titles: []string{"", ""}}
	if !info.Taken.IsZero() {
		t.Add("newest record", output.FormatSecond(info.Taken))
	}
	t.Add("saved", output.FormatSecond(info.Saved)+" by berth "+info.Build)
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

// recoveryFlags decide about tasks that the store does not know.
type recoveryFlags struct{ adopt, stop bool }

func (f *recoveryFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.adopt, "adopt", false,
		"keep tasks that run on nodes but are unknown to the store, if their owner still wants them")
	cmd.Flags().BoolVar(&f.stop, "stop", false, "stop tasks that run on nodes but are unknown to the store")
}

// action returns the decision, and whether exactly one flag is set.
func (f *recoveryFlags) action() (api.RecoveryAction, bool) {
	switch {
	case f.adopt && !f.stop:
		return api.RecoverAdopt, true
	case f.stop && !f.adopt:
		return api.RecoverStop, true
	}
	return "", false
}

// recoverCommand is `berth operator recover`.
type recoverCommand struct {
	*session.Session
	decision recoveryFlags
}

func newRecoverCommand(sess *session.Session) *cobra.Command {
	r := &recoverCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "recover --adopt|--stop", Short: "Adopt or stop tasks that the store does not know",
		Long: "Decides what happens to tasks that run on nodes but are unknown to the store. This is needed after a\n" +
			"snapshot was restored, or after the store lost data outside Berth's control. Until then nothing is\n" +
			"placed or stopped.",
		Args: session.Arguments(0, 0, ""),
		RunE: r.run,
	}
	r.decision.addFlags(cmd)
	return cmd
}

func (r *recoverCommand) run(cmd *cobra.Command, _ []string) error {
	action, ok := r.decision.action()
	c, err := r.Connect()
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
	if r.WantsData() {
		return r.PrintData(v)
	}
	word := map[api.RecoveryAction]string{
		api.RecoverAdopt: "kept if their owner still wants them",
		api.RecoverStop:  "stopped",
	}[action]
	r.Printf("tasks that the store does not know are %s; the store's incarnation is %d", word, v.Incarnation)
	return nil
}

// recoveryCause describes why a recovery is needed, or that none is.
func recoveryCause(v api.RecoveryView) string {
	if !v.Needed || v.Recovery == nil {
		return "; no recovery is needed now"
	}
	return ": " + v.Recovery.Cause
}

// silenceOverrideCommand is `berth operator silence override`.
type silenceOverrideCommand struct {
	*session.Session
	during time.Duration
	domain string
}

func newSilenceOverrideCommand(sess *session.Session) *cobra.Command {
	s := &silenceOverrideCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "override --for DURATION", Short: "Replace tasks of silent nodes during a mass silence",
		Long: "If more than 30 % of ten or more nodes become silent within a minute, their tasks are not replaced,\n" +
			"because the network is the likelier fault. This command allows the replacement for a while. --for 0s\n" +
			"ends the override.",
		Args: session.Arguments(0, 0, ""),
		RunE: s.run,
	}
	cmd.Flags().DurationVar(&s.during, "for", 0, "duration; 0s ends the override")
	cmd.Flags().StringVar(&s.domain, "domain", cluster.DefaultDomain, "the domain of the nodes")
	return cmd
}

func (s *silenceOverrideCommand) run(cmd *cobra.Command, _ []string) error {
	if !cmd.Flags().Changed("for") || s.during < 0 {
		return &session.UsageError{
			Command: cmd.CommandPath(),
			Message: "want --for DURATION, such as --for 10m",
		}
	}
	c, err := s.Connect()
	if err != nil {
		return err
	}
	v, err := c.Reschedule(cmd.Context(), s.domain, s.during)
	if err != nil {
		return err
	}
	switch {
	case s.WantsData():
		return s.PrintData(v)
	case s.during == 0:
		s.Printf("the override has ended: during a mass silence, tasks of silent nodes are not replaced")
	default:
		s.Printf("tasks of silent nodes are replaced until %s", output.FormatSecond(v.RescheduleUntil))
	}
	return nil
}
