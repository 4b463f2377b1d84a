// Package simulate implements berth simulate.
package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/apply"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/manifest"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/snapshotfile"
	"github.com/berthd/berth/internal/whatif"
	"github.com/berthd/berth/internal/wording"
)

// simulation holds the flags and the state of one run of the command.
type simulation struct {
	*session.Session
	request api.SimulateRequest
	// objects are the manifests of each change, for the places of faults.
	objects  map[int][]manifest.Object
	snapshot string
	show     []string
	trace    *whatif.Replay // nil without a trace
	faults   session.Faults // faults of the flags
}

// noSnapshot is the value of --snapshot for an empty domain.
const noSnapshot = "none"

// NewSimulateCommand returns the command `berth simulate`.
func NewSimulateCommand(sess *session.Session) *cobra.Command {
	s := &simulation{Session: sess, objects: map[int][]manifest.Object{}}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Predict the effect of changes of nodes, manifests or counts, or of a recorded workload",
		Long: "Predict what happens to all tasks when nodes join or leave, manifests are applied, or counts change.\n" +
			"Nothing is changed: the code of the servers makes the changes on a copy of the store, in the order\n" +
			"of the flags. Each change begins after the effects of the previous one have ended.\n\n" +
			"The simulation assumes that tasks become healthy immediately, gates pass, jobs do not end, and crons\n" +
			"create no jobs.\n\n" +
			"NODES is a number of nodes and their differences from most nodes, or from a named node: \"3\",\n" +
			"\"2:like=n3\",\n" +
			"\"4:cpu=16,memory=64GiB,disk=500GiB,label.zone=a,pool=batch,gpu=" +
			"4:A100:80GiB,taint=dedicated=gpu:no-schedule,name=big\".\n\n" +
			"TRACE is a recorded workload of another cluster, which is replayed after all changes: \"swf:FILE\" is\n" +
			"a log of a batch system in the Standard Workload Format, \"openb:FILE\" is a list of pods of the openb\n" +
			"traces. Options follow, separated by commas: nodes=FILE (openb: the list of machines, which join),\n" +
			"fill (openb: pods arrive one after the other and none ends), cpu=N and memory=SIZE (swf: the request\n" +
			"of a task for one processor), strategy=NAME, queue=NAME (easy, fair, fifo, greedy, sjbf; with fair\n" +
			"each user of the trace has a cluster), and the limits tasks=N and time=DURATION. This program replays\n" +
			"the trace on a snapshot from the server.\n\n" +
			"Exit code 0: all tasks are placed; 1: more tasks wait than before, or a rollout fails; 2: an error.",
		Args: session.Arguments(0, 0, ""),
		RunE: s.run,
	}
	f := cmd.Flags()
	for _, c := range s.changeFlags() {
		f.Var(c, c.name, c.usage)
	}
	f.Var(s.traceFlag(), "trace",
		"recorded workload of another cluster: openb:FILE or swf:FILE; options follow, separated by commas")
	f.StringVar(&s.snapshot, "snapshot", "",
		"simulate without a server, on the `file` of berth operator snapshot save, or none for an empty domain")
	f.StringVar(&s.request.Domain, "domain", "", "the domain of the nodes and clusters (default \"default\")")
	session.RegisterCompletion(cmd, "domain", sess.CompleteNames(wording.KindDomain))
	f.StringSliceVar(&s.show, "show", []string{"summary", "tasks"}, "what to print: summary, tasks, nodes")
	session.RegisterCompletion(cmd, "show",
		cobra.FixedCompletions([]string{"summary", "tasks", "nodes"}, cobra.ShellCompDirectiveNoFileComp))
	for _, name := range []string{"remove-node", "drain-node", "cordon-node"} {
		session.RegisterCompletion(cmd, name, sess.CompleteNames(wording.KindNode))
	}
	return cmd
}

// run simulates the changes and prints the result.
func (s *simulation) run(cmd *cobra.Command, _ []string) error {
	list := s.faults
	if len(s.request.Changes) == 0 && s.trace == nil && len(list.List) == 0 {
		list.Add("no change is given: want --add-nodes, --remove-node, --run, --trace or another change")
	}
	for _, part := range s.show {
		if !slices.Contains([]string{"summary", "tasks", "nodes"}, part) {
			list.Add("--show is %q, want summary, tasks or nodes", part)
		}
	}
	if err := list.Err(cmd); err != nil {
		return err
	}
	sim, err := s.simulate(cmd.Context())
	if err != nil {
		return s.locateFaults(err)
	}
	if s.trace != nil && !cmd.Flags().Changed("show") {
		s.show = []string{"summary"} // a list of thousands of tasks is no help
	}
	if err := s.print(sim); err != nil {
		return err
	}
	if !sim.Fits {
		return &session.ExitError{Code: session.ExitNo}
	}
	return nil
}

// simulate asks a server, or computes the result from a snapshot.
func (s *simulation) simulate(ctx context.Context) (*whatif.Traced, error) {
	if s.snapshot == "" && s.trace == nil {
		c, err := s.Connect()
		if err != nil {
			return nil, err
		}
		v, err := c.Simulate(ctx, s.request)
		return &whatif.Traced{Simulation: &v}, err
	}
	branch, now, err := s.openBranch(ctx)
	if err != nil {
		return nil, err
	}
	c := whatif.Config{Branch: branch, Now: now}
	if s.trace != nil {
		s.trace.Progress = s.replayProgress()
		return whatif.RunTrace(ctx, c, s.request, *s.trace)
	}
	v, err := whatif.Run(ctx, c, s.request)
	return &whatif.Traced{Simulation: v}, err
}

// openBranch returns a branch of the store in the snapshot, and the time of its newest record. Without a file it
// downloads the server's snapshot.
func (s *simulation) openBranch(ctx context.Context) (*store.Branch, time.Time, error) {
	var records []store.Record
	info := store.SnapshotInfo{Revision: 1}
	var err error
	name := s.snapshot
	switch name {
	case noSnapshot:
		info.Taken = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC) // for the same output each time
	case "":
		name = "of the server"
		records, info, err = s.download(ctx)
	default:
		var file *os.File
		if file, err = os.Open(name); err != nil {
			return nil, time.Time{}, fmt.Errorf("read the snapshot: %w", err)
		}
		defer file.Close()
		records, info, err = snapshotfile.ReadAll(file)
	}
	var branch *store.Branch
	if err == nil {
		branch, err = store.LoadBranch(records, info.Revision, store.DefaultPrefix, slog.New(slog.DiscardHandler))
	}
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read the snapshot: %s: %w", name, err)
	}
	if info.Taken.IsZero() {
		info.Taken = s.Now()
	}
	return branch, info.Taken, nil
}

// download reads a snapshot from the server into memory.
func (s *simulation) download(ctx context.Context) ([]store.Record, store.SnapshotInfo, error) {
	c, err := s.Connect()
	if err != nil {
		return nil, store.SnapshotInfo{}, err
	}
	from, to := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		_, err := c.Snapshot(ctx, to)
		_ = to.CloseWithError(err) // CloseWithError always returns nil
		sent <- err
	}()
	records, info, err := snapshotfile.ReadAll(from)
	_ = from.CloseWithError(err) // CloseWithError always returns nil
	if refused := <-sent; refused != nil && !errors.Is(refused, io.ErrClosedPipe) {
		return nil, info, refused
	}
	return records, info, err
}

// locateFaults adds the places in files to refused changes, and names changes by their flags.
func (s *simulation) locateFaults(err error) error {
	var all []cluster.Fault
	refused, online := errors.AsType[*client.Error](err)
	offline, wrong := errors.AsType[cluster.Faults](err)
	switch {
	case online && len(refused.Faults) > 0:
		all = refused.Faults
	case wrong:
		all = offline
	default:
		return err
	}
	var lines []string
	for _, f := range all {
		lines = append(lines, s.faultText(f))
	}
	return fmt.Errorf("%s in the changes\n%s", wording.Count(len(lines), "fault"), strings.Join(lines, "\n"))
}

// faultText describes a fault of a change.
func (s *simulation) faultText(f cluster.Fault) string {
	var i, k int
	if n, _ := fmt.Sscanf(f.Path, "changes[%d].run[%d]", &i, &k); n == 2 && k < len(s.objects[i]) {
		path := strings.TrimPrefix(f.Path, fmt.Sprintf("changes[%d].run[%d]", i, k))
		path = strings.TrimPrefix(strings.TrimPrefix(path, "."), "spec.")
		return apply.LocateFaults(s.objects[i],
			[]cluster.Fault{{Path: fmt.Sprintf("objects[%d].%s", k, path), Message: f.Message}}).Error()
	}
	if n, _ := fmt.Sscanf(f.Path, "changes[%d]", &i); n == 1 && i < len(s.request.Changes) {
		what := whatif.Describe(&s.request.Changes[i])
		path := strings.TrimPrefix(strings.TrimPrefix(f.Path, fmt.Sprintf("changes[%d]", i)), ".")
		if path != "" {
			what += ": " + path
		}
		return what + ": " + f.Message
	}
	return f.String()
}

// encodeObjects encodes manifest objects for the API.
func encodeObjects(objects []manifest.Object) ([]api.Object, error) {
	var out []api.Object
	for _, o := range objects {
		spec, err := json.Marshal(o.Value)
		if err != nil {
			return nil, fmt.Errorf("encode %s %s: %w", o.Kind, o.Name(), err)
		}
		out = append(out, api.Object{Kind: o.Kind, Spec: spec})
	}
	return out, nil
}
