package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/storeflags"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/engines"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/restore"
	"github.com/berthd/berth/internal/wording"
)

// Commands that work on the data directory of a stopped server, or on an external store without servers.

// snapshotRestoreCommand is `berth operator snapshot restore`.
type snapshotRestoreCommand struct {
	*session.Session
	dataDir  string
	decision recoveryFlags
	store    storeflags.Flags
	replace  bool
}

func newSnapshotRestoreCommand(sess *session.Session) *cobra.Command {
	s := &snapshotRestoreCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Create a store from a snapshot",
		Long: "Creates the store of a stopped server from a snapshot of any store. An existing store is renamed,\n" +
			"not deleted. The server is then the only member: the other servers must join again, from empty data\n" +
			"directories.\n\n" +
			"With --store, or if the server uses an external store, the snapshot is written into that store. All\n" +
			"servers must be stopped. The store must be empty, unless --replace is given. Servers refuse the store\n" +
			"until the restore is complete. If it is interrupted, run it again with the same file.\n\n" +
			"Everything that was written after the snapshot is lost. Nodes may run tasks that are unknown to the\n" +
			"snapshot: --adopt keeps them, --stop stops them. Without either, nothing is placed or stopped until\n" +
			"you run `berth operator recover`.",
		Args: session.Arguments(1, 1, "a snapshot's file"),
		RunE: s.run,
	}
	addDataDirFlag(cmd, &s.dataDir)
	s.decision.addFlags(cmd)
	s.store.AddTo(cmd.Flags())
	cmd.Flags().BoolVar(&s.replace, "replace", false,
		"delete the records of the external store, also those of an interrupted restore of another file")
	return cmd
}

func (s *snapshotRestoreCommand) run(cmd *cobra.Command, args []string) error {
	var list session.Faults
	action, decided := s.decision.action()
	if !decided && s.decision != (recoveryFlags{}) {
		list.Add("--adopt and --stop exclude each other: want one of them")
	}
	s.store.Check(&list)
	if err := list.Err(cmd); err != nil {
		return err
	}
	info, err := readSnapshotInfo(args[0])
	if err != nil {
		return err
	}
	if info.Prefix != store.DefaultPrefix {
		return fmt.Errorf("%s holds keys that begin with %q, and those of a server's store begin with %q", args[0],
			info.Prefix, store.DefaultPrefix)
	}
	at := s.store.Location
	if len(at.Endpoints) == 0 {
		if at, err = s.recordedStore(); err != nil {
			return err
		}
	}
	if len(at.Endpoints) > 0 {
		return s.restoreElsewhere(cmd.Context(), args[0], at, restoreCause(args[0], &info), action)
	}
	if s.replace {
		return &session.UsageError{
			Command: cmd.CommandPath(),
			Message: "--replace needs --store: a server's own store is renamed, not replaced",
		}
	}
	return s.restoreOwn(cmd.Context(), args[0], info, action)
}

// addDataDirFlag adds the flag that names the data directory of a stopped server.
func addDataDirFlag(cmd *cobra.Command, dataDir *string) {
	cmd.Flags().StringVar(dataDir, "data-dir", datadir.DefaultDataDir(),
		"data directory of the server (default "+datadir.DataDirText+")")
	session.HideDefaults(cmd, "data-dir")
}

// recordedStore returns the external store that the server of the data directory used at its last start. Without one
// the location is empty.
func (s *snapshotRestoreCommand) recordedStore() (engines.Location, error) {
	at, err := datadir.ReadExternalStore(s.dataDir)
	if err != nil {
		return engines.Location{}, err
	}
	external := at != nil
	if settings, err := datadir.ReadSettings(s.dataDir); err == nil && settings != nil {
		external, at = settings.External, settings.Store
	}
	switch {
	case !external:
		return engines.Location{}, nil
	case at == nil:
		return engines.Location{}, &hinted.Error{
			Err: fmt.Errorf("the server in %s uses an external store and does not know which", s.dataDir),
			Hint: "Name the store as on the other servers:  --store etcd://HOST:2379[,HOST:2379]  or  " +
				"--store consul://HOST:8500",
		}
	}
	return engines.Recorded(at), nil
}

// restoreElsewhere writes a snapshot into an external store.
func (s *snapshotRestoreCommand) restoreElsewhere(ctx context.Context, file string, at engines.Location, cause string,
	action api.RecoveryAction,
) (err error) {
	where, err := at.Record()
	if err != nil {
		return err
	}
	engine, err := at.Dial(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	info, err := restore.Into(ctx, engine, restore.Config{
		Prefix:  store.DefaultPrefix,
		Name:    filepath.Base(file),
		Open:    func() (io.ReadCloser, error) { return os.Open(file) },
		Replace: s.replace,
		Finish: func(ctx context.Context, engine store.Engine) error {
			return restore.Mark(ctx, engine, store.DefaultPrefix, cause, decisionOf(s.Session, action))
		},
	})
	if err != nil {
		return addRestoreHint(fmt.Errorf("restore %s into %s: %w", file, where.URL(), err))
	}
	printKeysMissing(s.Session, &info, s.dataDir)
	s.Printf("%s is restored: %s", where.URL(), wording.Count(info.Keys, "record"))
	s.Printf("Start the servers:       berth server%s", where.Flags())
	if action == "" {
		s.Printf("Then decide about unknown tasks: berth operator recover --adopt|--stop")
	}
	return nil
}

// addRestoreHint adds what to do to an error of a restore into an external store.
func addRestoreHint(err error) error {
	hint := "The store is incomplete if records were written already: servers then refuse it. Run the command again " +
		"with the same file."
	switch {
	case errors.Is(err, restore.ErrNotEmpty):
		hint = "If all servers are stopped and the records may be deleted, add --replace. Save them before with " +
			"`berth operator snapshot save`."
	case errors.Is(err, restore.ErrInUse):
		hint = "Stop all servers first."
	case errors.Is(err, restore.ErrIncomplete):
		hint = "Run the restore of that file again, or begin anew with this file and --replace."
	case errors.Is(err, store.ErrInvalid), errors.Is(err, store.ErrTooLarge):
		return err
	}
	return &hinted.Error{Err: err, Hint: hint}
}

// restoreOwn replaces the store of a data directory by a snapshot. The old store is moved aside once the new one is
// complete.
func (s *snapshotRestoreCommand) restoreOwn(ctx context.Context, file string, info store.SnapshotInfo,
	action api.RecoveryAction,
) error {
	// 1. Check that no process uses the store.
	dir := filepath.Join(s.dataDir, datadir.StoreDir)
	if err := os.MkdirAll(s.dataDir, 0o700); err != nil {
		return fmt.Errorf("create the data directory: %w", err)
	}
	if err := checkUnused(dir); err != nil {
		return err
	}
	// 2. Make the new store beside the old one.
	newPath, err := os.MkdirTemp(s.dataDir, datadir.StoreDir+".restore-")
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
	if err := markRestored(ctx, s.Session, newPath, restoreCause(file, &info), action); err != nil {
		return err
	}
	// 3. Move the new store into place.
	oldPath, err := ReplaceStore(newPath, dir, s.Now())
	if err != nil {
		return err
	}
	printKeysMissing(s.Session, &info, s.dataDir)
	return printRestoreResult(s.Session, s.dataDir, "is restored", oldPath, action)
}

// restoreCause is the cause of the recovery that a restore requires.
func restoreCause(file string, info *store.SnapshotInfo) string {
	return fmt.Sprintf("the snapshot %s of revision %d was restored", filepath.Base(file), info.Revision)
}

// decisionOf returns the operator's decision for the marks of a restore.
func decisionOf(sess *session.Session, action api.RecoveryAction) restore.Decision {
	return restore.Decision{State: cluster.RecoveryState(action), At: sess.Now()}
}

// markRestored marks the store in a directory as restored.
func markRestored(ctx context.Context, sess *session.Session, dir, cause string,
	action api.RecoveryAction,
) (err error) {
	engine, err := engines.Own{Dir: dir}.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	return restore.Mark(ctx, engine, store.DefaultPrefix, cause, decisionOf(sess, action))
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
