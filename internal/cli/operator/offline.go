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
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/election"
	"github.com/berthd/berth/internal/store/etcd"
)

// What is done to the data directory of a server that does not run.

func newSnapshotRestoreCommand(sess *session.Session) *cobra.Command {
	var dataDir string
	var adopt, stop bool
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Make a server's store from a snapshot",
		Long: "Makes the store of a server that does not run from a snapshot; a store that is there is " +
			"moved aside, not deleted. The server is then the\n" +
			"only member: the others have to join anew, from empty data directories. All that was written " +
			"after the snapshot is gone. Nodes may run\n" +
			"tasks that the snapshot does not know: --adopt or --stop says what becomes of them; without " +
			"either, nothing is placed or stopped\n" +
			"until `berth operator recover` says it.",
		Args: session.Arguments(1, 1, "a snapshot's file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			action, decided := decision(adopt, stop)
			if !decided && (adopt || stop) {
				return &session.UsageError{Command: cmd.CommandPath(), Message: "want only one of --adopt and --stop"}
			}
			return restoreStore(cmd.Context(), sess, args[0], dataDir, action)
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", datadir.DefaultDataDir(),
		"data directory of the server (default "+datadir.DataDirText+")")
	cmd.Flags().BoolVar(&adopt, "adopt", false, adoptUsage)
	cmd.Flags().BoolVar(&stop, "stop", false, stopUsage)
	session.OfMachine(cmd, "data-dir")
	return cmd
}

// restoreStore makes the store of a data directory from a snapshot. The old one is moved aside only once the new one is
// whole.
func restoreStore(ctx context.Context, sess *session.Session, file, dataDir string, action api.RecoveryAction) error {
	// 1. The snapshot is good, and nobody uses the store.
	info, err := inspectSnapshot(file)
	if err != nil {
		return err
	}
	dir := filepath.Join(dataDir, datadir.StoreDir)
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	if err := unused(dir); err != nil {
		return err
	}
	at, err := datadir.ReadStore(dataDir)
	if err != nil {
		return err
	}
	if s, err := datadir.ReadSettings(dataDir); err == nil && s != nil && s.External || s == nil && at != nil {
		return &hinted.Error{
			Err:  fmt.Errorf("the store of the server in %s runs elsewhere", dataDir),
			Hint: "Restore it there, with etcd's own tools; then `berth operator recover`.",
		}
	}
	// 2. The new store, beside the old one.
	made, err := os.MkdirTemp(dataDir, datadir.StoreDir+".restore-")
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer os.RemoveAll(made) // it has been moved, or is of no use
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read the snapshot: %w", err)
	}
	defer f.Close()
	if err := etcd.Restore(made, f); err != nil {
		return err
	}
	cause := fmt.Sprintf("the snapshot %s of revision %d was restored", filepath.Base(file), info.Revision)
	if err := markStore(ctx, sess, made, cause, action); err != nil {
		return err
	}
	// 3. In its place.
	aside, err := PutInPlace(made, dir, sess.Now())
	if err != nil {
		return err
	}
	tellSecretsRestored(sess, &info, dataDir)
	return tellRestored(sess, dataDir, "is restored", aside, action)
}

// markStore raises a store above all that was written after it, and writes down what becomes of tasks that it does not
// know (P1.7). The records of other servers go: they have no part in the store any more, and join anew.
func markStore(ctx context.Context, sess *session.Session, dir, cause string, action api.RecoveryAction) (err error) {
	engine, err := etcd.Open(ctx, etcd.Config{Dir: dir})
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
		return fmt.Errorf("forget the servers: %w", err)
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

// PutInPlace moves a store into its place, and one that is there aside; it returns where to. Made has a name of its own
// afterwards, or is gone. The two are exchanged in one step, so that an interruption leaves the one or the other in
// place; where the file system cannot do that, an interruption may leave none, and the server does not start then.
func PutInPlace(made, dir string, now time.Time) (aside string, err error) {
	if _, err := os.Stat(dir); err == nil {
		aside = dir + ".before-" + now.UTC().Format("20060102-150405")
		err := unix.Renameat2(unix.AT_FDCWD, made, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
		if err == nil {
			if err := os.Rename(made, aside); err != nil { // else it would be taken for what is of no use
				back := unix.Renameat2(unix.AT_FDCWD, made, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
				return "", fmt.Errorf("move the old store aside: %w", errors.Join(err, back))
			}
			return aside, datadir.SyncDir(filepath.Dir(dir))
		}
		if err := os.Rename(dir, aside); err != nil {
			return "", fmt.Errorf("move the old store aside: %w", err)
		}
	}
	if err := os.Rename(made, dir); err != nil {
		return aside, fmt.Errorf("put the store in place: %w", err)
	}
	return aside, datadir.SyncDir(filepath.Dir(dir))
}

// unused demands that no process holds a store.
func unused(dir string) error {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the store: %w", err)
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

// tellRestored says what became of a store, and how to go on.
func tellRestored(sess *session.Session, dataDir, became, aside string, action api.RecoveryAction) error {
	flag := ""
	if dataDir != datadir.DefaultDataDir() {
		flag = " --data-dir " + dataDir
	}
	sess.Printf("%s %s", filepath.Join(dataDir, datadir.StoreDir), became)
	if aside != "" {
		sess.Printf("The store that was there is %s: delete it once all is well", aside)
	}
	sess.Printf("Start the server:        berth server%s", flag)
	if action == "" {
		sess.Printf("Then say how to go on:   berth operator recover --adopt|--stop")
	}
	if s, err := datadir.ReadSettings(dataDir); err == nil && s != nil {
		sess.Printf("Then the other servers:  empty their data directories, and `berth server join` each anew")
	}
	return nil
}

// NewServerRecoverCommand returns the command `berth server recover-quorum`.
func NewServerRecoverCommand(sess *session.Session) *cobra.Command {
	var dataDir string
	var yes bool
	cmd := &cobra.Command{
		Use:   "recover-quorum --data-dir DIR --yes",
		Short: "Go on with one server when more than half are lost for good",
		Long: "For when more than half of the servers are lost for good, and with them the store's quorum. " +
			"Makes the store of this server, which must\n" +
			"not run, the only member with all that it holds. Choose the server that was in touch last: " +
			"what it did not hold yet is lost. The other\n" +
			"servers, also one that lives, have to join anew from empty data directories; two stores that " +
			"both go on would tear the cluster apart.",
		Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := datadir.ReadSettings(dataDir)
			if err != nil {
				return err
			}
			if _, err := os.Stat(filepath.Join(dataDir, datadir.StoreDir, "member")); err != nil {
				return fmt.Errorf("%s holds no store: name the data directory of the server with --data-dir", dataDir)
			}
			if !yes {
				return &hinted.Error{
					Err: errors.New("this makes the server in " + dataDir +
						" the only one: writes that it had not received yet are lost, and the other servers " +
						"must not run any more"),
					Hint: "Say --yes if that is meant. If more than half of the servers can still be started, " +
						"start them instead: nothing is lost then.",
				}
			}
			return RecoverQuorum(cmd.Context(), sess, dataDir, s)
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", datadir.DefaultDataDir(),
		"data directory of the server (default "+datadir.DataDirText+")")
	cmd.Flags().BoolVar(&yes, "yes", false, "this is meant")
	session.OfMachine(cmd, "data-dir")
	return cmd
}

// RecoverQuorum makes the store of a data directory a store of one.
func RecoverQuorum(ctx context.Context, sess *session.Session, dataDir string, s *datadir.Settings) error {
	dir := filepath.Join(dataDir, datadir.StoreDir)
	if err := unused(dir); err != nil {
		return err
	}
	id, err := datadir.ServerID(filepath.Join(dataDir, datadir.IDFile))
	if err != nil {
		return err
	}
	// The new store is made and marked beside the old one, which stays as it is until then: one that is not marked must
	// not start.
	made, err := os.MkdirTemp(dataDir, datadir.StoreDir+".recover-")
	if err != nil {
		return fmt.Errorf("recover the quorum: %w", err)
	}
	defer os.RemoveAll(made) // it has been moved, or is of no use
	if err := etcd.ForceAlone(ctx, etcd.Config{Dir: dir, Name: id}, made); err != nil {
		return err
	}
	if err := markStore(ctx, sess, made, "the store went on with this server alone after its quorum was lost",
		""); err != nil {
		return err
	}
	before, err := PutInPlace(made, dir, sess.Now())
	if err != nil {
		return err
	}
	if s != nil && len(s.Join) > 0 {
		s.Join = nil
		if err := s.Write(dataDir); err != nil {
			return err
		}
	}
	return tellRestored(sess, dataDir, "goes on with this server alone", before, "")
}
