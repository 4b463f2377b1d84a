package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/engines"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/election"
)

// Commands that work on the data directory of a stopped server.

// snapshotRestoreCommand is `berth operator snapshot restore`.
type snapshotRestoreCommand struct {
	*session.Session
	dataDir  string
	decision recoveryFlags
}

func newSnapshotRestoreCommand(sess *session.Session) *cobra.Command {
	s := &snapshotRestoreCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Create a server's store from a snapshot",
		Long: "Creates the store of a stopped server from a snapshot. An existing store is renamed, not deleted.\n" +
			"The server is then the only member: the other servers must join again, from empty data directories.\n" +
			"Everything that was written after the snapshot is lost. Nodes may run tasks that are unknown to the\n" +
			"snapshot: --adopt keeps them, --stop stops them. Without either, nothing is placed or stopped until\n" +
			"you run `berth operator recover`.",
		Args: session.Arguments(1, 1, "a snapshot's file"),
		RunE: s.run,
	}
	addDataDirFlag(cmd, &s.dataDir)
	s.decision.addFlags(cmd)
	return cmd
}

func (s *snapshotRestoreCommand) run(cmd *cobra.Command, args []string) error {
	action, decided := s.decision.action()
	if !decided && s.decision != (recoveryFlags{}) {
		return &session.UsageError{Command: cmd.CommandPath(), Message: "--adopt and --stop exclude " +
			"each other: want one of them"}
	}
	return restoreStore(cmd.Context(), s.Session, args[0], s.dataDir, action)
}

// addDataDirFlag adds the flag that names the data directory of a stopped server.
func addDataDirFlag(cmd *cobra.Command, dataDir *string) {
	cmd.Flags().StringVar(dataDir, "data-dir", datadir.DefaultDataDir(),
		"data directory of the server (default "+datadir.DataDirText+")")
	session.HideDefaults(cmd, "data-dir")
}

// restoreStore replaces the store of a data directory by a snapshot. The old store is moved aside once the new one is
// complete.
func restoreStore(ctx context.Context, sess *session.Session, file, dataDir string, action api.RecoveryAction) error {
	// 1. Check the snapshot, and that no process uses the store.
	info, err := readSnapshotInfo(file)
	if err != nil {
		return err
	}
	dir := filepath.Join(dataDir, datadir.StoreDir)
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return fmt.Errorf("create the data directory: %w", err)
	}
	if err := checkUnused(dir); err != nil {
		return err
	}
	at, err := datadir.ReadExternalStore(dataDir)
	if err != nil {
		return err
	}
	if s, err := datadir.ReadSettings(dataDir); err == nil && s != nil && s.External || s == nil && at != nil {
		return &hinted.Error{
			Err:  fmt.Errorf("the server in %s uses an external etcd", dataDir),
			Hint: "Restore the snapshot there with etcd's own tools, then run `berth operator recover`.",
		}
	}
	// 2. Make the new store beside the old one.
	newPath, err := os.MkdirTemp(dataDir, datadir.StoreDir+".restore-")
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer os.RemoveAll(newPath) // after a success the directory has moved
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read the snapshot: %w", err)
	}
	defer f.Close()
	if err := engines.Restore(newPath, f); err != nil {
		return err
	}
	cause := fmt.Sprintf("the snapshot %s of revision %d was restored", filepath.Base(file), info.Revision)
	if err := markRestored(ctx, sess, newPath, cause, action); err != nil {
		return err
	}
	// 3. Move the new store into place.
	oldPath, err := ReplaceStore(newPath, dir, sess.Now())
	if err != nil {
		return err
	}
	printKeysMissing(sess, &info, dataDir)
	return printRestoreResult(sess, dataDir, "is restored", oldPath, action)
}

// markRestored raises the store's revision above all later writes and records what happens to tasks that it does not
// know (P1.7). It deletes the records of other servers: they have to join again.
func markRestored(ctx context.Context, sess *session.Session, dir, cause string,
	action api.RecoveryAction,
) (err error) {
	engine, err := engines.Own{Dir: dir}.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	if err := election.Reincarnate(ctx, engine, store.DefaultPrefix, cause); err != nil {
		return err
	}
	servers, err := engine.List(ctx, store.DefaultPrefix+"server/")
	if err != nil {
		return err
	}
	var gone []store.Group
	for _, record := range servers.Records {
		gone = append(gone, store.Group{Ops: []store.Op{{Key: record.Key, Delete: true}}})
	}
	if _, err := engine.Commit(ctx, gone); err != nil {
		return fmt.Errorf("remove the records of the servers: %w", err)
	}
	if action == "" {
		return nil
	}
	listing, err := engine.List(ctx, store.DefaultPrefix+"recovery/")
	if err != nil {
		return err
	}
	for _, record := range listing.Records {
		r, err := store.Decode[cluster.Recovery](record.Value)
		if err != nil {
			return fmt.Errorf("read %s: %w", record.Key, err)
		}
		r.State, r.Decided, r.By = cluster.RecoveryState(action), sess.Now().UTC(), "the restore"
		value, err := store.Encode(r)
		if err != nil {
			return err
		}
		_, err = engine.Commit(ctx, []store.Group{{
			Compares: []store.Compare{{Key: record.Key, Modified: record.Modified}},
			Ops:      []store.Op{{Key: record.Key, Value: value}},
		}})
		if err != nil {
			return fmt.Errorf("write %s: %w", record.Key, err)
		}
	}
	return nil
}

// ReplaceStore moves the store at newPath to dir. It returns the path to which the old store moved, or "". A rename
// exchanges both, so an interruption leaves one of them in place. On file systems without that exchange an interruption
// may leave none, and the server refuses to start.
func ReplaceStore(newPath, dir string, now time.Time) (oldPath string, err error) {
	if _, err := os.Stat(dir); err == nil {
		oldPath = dir + ".before-" + now.UTC().Format("20060102-150405")
		err := unix.Renameat2(unix.AT_FDCWD, newPath, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
		if err == nil {
			if err := os.Rename(newPath, oldPath); err != nil { // newPath must not be deleted as a temporary directory
				back := unix.Renameat2(unix.AT_FDCWD, newPath, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
				return "", fmt.Errorf("rename the old store: %w", errors.Join(err, back))
			}
			return oldPath, datadir.SyncDir(filepath.Dir(dir))
		}
		if err := os.Rename(dir, oldPath); err != nil {
			return "", fmt.Errorf("rename the old store: %w", err)
		}
	}
	if err := os.Rename(newPath, dir); err != nil {
		return oldPath, fmt.Errorf("move the new store into place: %w", err)
	}
	return oldPath, datadir.SyncDir(filepath.Dir(dir))
}

// checkUnused returns an error if a process holds the store.
func checkUnused(dir string) error {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the store: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return &hinted.Error{
			Err:  fmt.Errorf("the store in %s is in use by another process", dir),
			Hint: "Stop the server first.",
		}
	}
	return nil
}

// printRestoreResult prints what happened to the store and the next steps.
func printRestoreResult(sess *session.Session, dataDir, became, oldPath string, action api.RecoveryAction) error {
	flag := ""
	if dataDir != datadir.DefaultDataDir() {
		flag = " --data-dir " + dataDir
	}
	sess.Printf("%s %s", filepath.Join(dataDir, datadir.StoreDir), became)
	if oldPath != "" {
		sess.Printf("The previous store is now %s. Delete it when the cluster works again.", oldPath)
	}
	sess.Printf("Start the server:        berth server%s", flag)
	if action == "" {
		sess.Printf("Then decide about unknown tasks: berth operator recover --adopt|--stop")
	}
	if s, err := datadir.ReadSettings(dataDir); err == nil && s != nil {
		sess.Printf("Then the other servers:  empty their data directories and run `berth server join` " +
			"on each")
	}
	return nil
}

// serverRecoverCommand is `berth server recover-quorum`.
type serverRecoverCommand struct {
	*session.Session
	dataDir   string
	confirmed bool
}

// NewServerRecoverCommand returns the command `berth server recover-quorum`.
func NewServerRecoverCommand(sess *session.Session) *cobra.Command {
	r := &serverRecoverCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "recover-quorum --data-dir DIR --yes",
		Short: "Continue with one server after most servers are lost",
		Long: "Use this command when more than half of the servers are lost permanently and the store has no\n" +
			"quorum. It makes this stopped server the only member of its store. Choose the server with the newest\n" +
			"data: writes that it had not received are lost. All other servers, even running ones, must join\n" +
			"again from empty data directories. Two active stores would split the cluster.",
		Args: session.Arguments(0, 0, ""),
		RunE: r.run,
	}
	addDataDirFlag(cmd, &r.dataDir)
	cmd.Flags().BoolVar(&r.confirmed, "yes", false, "confirm")
	return cmd
}

func (r *serverRecoverCommand) run(cmd *cobra.Command, _ []string) error {
	s, err := datadir.ReadSettings(r.dataDir)
	if err != nil {
		return err
	}
	if !engines.Exists(filepath.Join(r.dataDir, datadir.StoreDir)) {
		return fmt.Errorf("%s contains no store: name the data directory of the server with --data-dir", r.dataDir)
	}
	if !r.confirmed {
		return &hinted.Error{
			Err: errors.New("this makes the server in " + r.dataDir + " the only member of the store: " +
				"writes that it had not received are lost, and the other servers must stay stopped"),
			Hint: "Confirm with --yes. If more than half of the servers can still be started, start " +
				"them instead: then nothing is lost.",
		}
	}
	return RecoverQuorum(cmd.Context(), r.Session, r.dataDir, s)
}

// RecoverQuorum makes a store with a single member from the store of a data directory.
func RecoverQuorum(ctx context.Context, sess *session.Session, dataDir string, s *datadir.Settings) error {
	dir := filepath.Join(dataDir, datadir.StoreDir)
	if err := checkUnused(dir); err != nil {
		return err
	}
	id, err := datadir.ServerID(filepath.Join(dataDir, datadir.IDFile))
	if err != nil {
		return err
	}
	// The new store is made and marked beside the old one. A store without the mark must not start.
	newPath, err := os.MkdirTemp(dataDir, datadir.StoreDir+".recover-")
	if err != nil {
		return fmt.Errorf("recover the quorum: %w", err)
	}
	defer os.RemoveAll(newPath) // after a success the directory has moved
	if err := engines.ForceAlone(ctx, dir, id, newPath); err != nil {
		return err
	}
	if err := markRestored(ctx, sess, newPath, "the store continued with this server alone after its quorum was lost",
		""); err != nil {
		return err
	}
	before, err := ReplaceStore(newPath, dir, sess.Now())
	if err != nil {
		return err
	}
	if s != nil && len(s.Join) > 0 {
		s.Join = nil
		if err := s.Write(dataDir); err != nil {
			return err
		}
	}
	return printRestoreResult(sess, dataDir, "now has this server as its only member", before, "")
}
