package apply

import (
	"cmp"
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
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/wait"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/manifest"
)

// convergeLabel marks the services, jobs, crons and endpoints that a converge brought. Its value is the name of the
// directory. Only converge writes it, so --prune deletes nothing that others made.
const convergeLabel = "berth.converge"

// maxConvergeName limits the name of a directory in bytes, as a label does.
const maxConvergeName = cluster.MaxLabel

const convergeLong = "Bring the node or fleet to a directory of manifests (*.yaml, *.yml, *.json), and wait until\n" +
	"every service is healthy and every job has succeeded. The command prints the differences. A second\n" +
	"run changes nothing. It is made for Ansible, Puppet, Chef and similar programs.\n\n" +
	"A fault in one manifest changes nothing at all. Every fault is printed with its file, line and column.\n\n" +
	"Services, jobs, crons and endpoints get the label " + convergeLabel + " with the name of the directory, or\n" +
	"that of --name. With --prune, the command deletes those with this label that are in no manifest any\n" +
	"more. Objects without the label stay, and so do clusters, pools, domains and task definitions.\n\n" +
	"Exit codes:\n" +
	"  0  everything was as the directory says\n" +
	"  2  something was changed, or would be with --check\n" +
	"  1  it failed: a fault in a manifest or on the command line, no server, a refusal, or a service or job\n" +
	"     that is not healthy; -o json tells whether something was changed before\n\n" +
	"The limits of the wait are those of 'berth run'."

// convergeCommand is `berth converge`.
type convergeCommand struct {
	*session.Session
	name    string
	prune   bool
	check   bool
	detach  bool
	timeout time.Duration
}

// NewConvergeCommand returns the command `berth converge`.
func NewConvergeCommand(sess *session.Session) *cobra.Command {
	v := &convergeCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "converge DIR",
		Short: "Bring a node or fleet to a directory of manifests; exit code 2 if something changed",
		Long:  convergeLong,
		Args:  session.Arguments(1, 1, "a directory of manifests"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: v.run,
	}
	cmd.Flags().StringVar(&v.name, "name", "",
		"the `name` of the directory in the label "+convergeLabel+"; default its last part, such as manifests")
	cmd.Flags().BoolVar(&v.prune, "prune", false,
		"also delete what an earlier converge of this name brought and no manifest has any more")
	cmd.Flags().BoolVar(&v.check, "check", false, "change nothing, only print the differences")
	session.AddDetachFlag(cmd, &v.detach)
	cmd.Flags().DurationVar(&v.timeout, "timeout", 0, "stop waiting after this `duration`")
	session.MarkManaged(cmd)
	return cmd
}

// convergeResult is the result for programs.
type convergeResult struct {
	Directory string `json:"directory"`
	Name      string `json:"name"`
	Check     bool   `json:"check"`
	// Changed says whether something was changed, or would be with --check.
	Changed bool              `json:"changed"`
	Objects []convergedObject `json:"objects"`
	Failure *convergeFailure  `json:"failure,omitempty"`
}

// convergedObject is what happened to one object.
type convergedObject struct {
	Object string     `json:"object"`
	Action api.Action `json:"action"`
	// Diff are the fields that differ, with both values as JSON.
	Diff   []api.FieldChange `json:"diff,omitempty"`
	Effect string            `json:"effect,omitempty"`
}

// actionDelete is the action for what --prune deletes. An apply has no such action.
const actionDelete api.Action = "delete"

// convergeFailure is why a converge failed.
type convergeFailure struct {
	Message string `json:"message"`
	// Faults are the faults of the manifests.
	Faults []placedFault `json:"faults,omitempty"`
	// Unhealthy are the services and jobs that did not become healthy or succeed.
	Unhealthy []wait.Unmet `json:"unhealthy,omitempty"`
}

// placedFault is a fault with its place in a file.
type placedFault struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"` // of the field
	Message string `json:"message"`
}

func (v *convergeCommand) run(cmd *cobra.Command, args []string) error {
	r := convergeResult{Directory: args[0], Check: v.check, Objects: []convergedObject{}}
	err := v.converge(cmd.Context(), &r)
	if err != nil && r.Failure == nil {
		r.Failure = describeFailure(err)
	}
	if v.WantsData() {
		err = errors.Join(err, v.PrintData(r))
	}
	if err == nil && r.Changed {
		return &session.ExitError{Code: session.ExitChanged}
	}
	return err
}

// describeFailure returns an error for programs.
func describeFailure(err error) *convergeFailure {
	f := &convergeFailure{Message: session.ErrorText(err)}
	if faults, ok := errors.AsType[manifest.Faults](err); ok {
		f.Message, _, _ = strings.Cut(f.Message, "\n") // its other lines are the faults
		for _, x := range faults {
			f.Faults = append(f.Faults, placedFault{x.File, x.Line, x.Column, x.Path, x.Message})
		}
	}
	return f
}

// converge changes what differs and adds what it did to the result.
func (v *convergeCommand) converge(ctx context.Context, r *convergeResult) error {
	// 1. Read the directory.
	if err := v.findName(r); err != nil {
		return err
	}
	objects, err := ReadManifests(v.Session, []string{r.Directory})
	if err != nil {
		return err
	}
	if err := labelObjects(objects, r.Name); err != nil {
		return err
	}
	// 2. Compare it with the server.
	c, err := v.Connect()
	if err != nil {
		return err
	}
	unwritten, err := v.findUnwritten(ctx, c, r.Name, objects)
	if err != nil {
		return err
	}
	reply, err := sendObjects(ctx, c, objects, true)
	if err != nil {
		return err
	}
	if err := checkOwnership(reply); err != nil {
		return err
	}
	plan := planReply{ApplyReply: reply}
	for _, n := range unwritten {
		plan.Delete = append(plan.Delete, n.String())
	}
	r.note(plan)
	if !v.WantsData() {
		if err := printPlan(v.Session, plan); err != nil {
			return err
		}
	}
	if v.check {
		return nil
	}
	// 3. Change what differs.
	if r.Changed {
		r.Changed = false // until something is
		if reply, err = sendObjects(ctx, c, objects, false); err != nil {
			return err
		}
		r.note(planReply{ApplyReply: reply, Delete: plan.Delete})
	}
	d := deletion{Session: v.Session, detach: v.detach, skipMissing: true}
	deleting, err := d.begin(ctx, c, unwritten)
	if err != nil || v.detach {
		return err
	}
	// 4. Wait.
	if err := v.await(ctx, c, targetsOf(reply), r); err != nil {
		return err
	}
	return d.await(ctx, c, deleting)
}

// findName sets the name of the directory, and checks that there is such a directory.
func (v *convergeCommand) findName(r *convergeResult) error {
	info, err := os.Stat(r.Directory)
	if err == nil && !info.IsDir() {
		return &hinted.Error{
			Err:  fmt.Errorf("%s is a file: want a directory of manifests", r.Directory),
			Hint: "'berth run " + r.Directory + "' applies one manifest.",
		}
	}
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		err = fmt.Errorf("%s: %w", r.Directory, pe.Err)
	}
	if err != nil {
		return err
	}
	path, err := filepath.Abs(r.Directory)
	if err != nil {
		return err
	}
	r.Name = cmp.Or(v.name, filepath.Base(path))
	if len(r.Name) > maxConvergeName || r.Name == "/" || strings.TrimSpace(r.Name) != r.Name {
		return &hinted.Error{
			Err:  fmt.Errorf("%q cannot be the name of a directory in the label %s", r.Name, convergeLabel),
			Hint: fmt.Sprintf("Give a name of up to %d bytes, such as --name shop.", maxConvergeName),
		}
	}
	return nil
}

// labelObjects adds the label to the services, jobs, crons and endpoints. A manifest must not have it.
func labelObjects(objects []manifest.Object, name string) error {
	var faults manifest.Faults
	for i := range objects {
		labels := labelsOf(&objects[i])
		if labels == nil {
			continue
		}
		if _, written := (*labels)[convergeLabel]; written {
			path := fmt.Sprintf("labels[%q]", convergeLabel)
			faults = append(faults, manifest.Fault{
				Position: objects[i].At(path), Path: path,
				Message: "is written by berth converge: leave it out, and choose its value with --name",
			})
		}
		*labels = maps.Clone(*labels)
		if *labels == nil {
			*labels = cluster.Labels{}
		}
		(*labels)[convergeLabel] = name
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// labelsOf returns the labels of an object that a converge marks, or nil.
func labelsOf(o *manifest.Object) *cluster.Labels {
	switch v := o.Value.(type) {
	case *cluster.Service:
		return &v.Labels
	case *cluster.Job:
		return &v.Labels
	case *cluster.Cron:
		return &v.Labels
	case *cluster.Endpoint:
		return &v.Labels
	}
	return nil
}

// findUnwritten returns what --prune deletes. It refuses to delete all that has the label: then another directory of
// the same name probably brought it.
func (v *convergeCommand) findUnwritten(ctx context.Context, c *client.Client, name string,
	objects []manifest.Object,
) ([]session.Name, error) {
	if !v.prune {
		return nil, nil
	}
	// A selector cannot hold every name of a directory, such as one with a comma.
	selected := selection{
		clusters: []string{""}, selector: convergeLabel,
		selects: func(l cluster.Labels) bool { return l[convergeLabel] == name },
	}
	unwritten, written, err := selected.find(ctx, c, objects)
	if err != nil || len(unwritten) == 0 || written > 0 {
		return unwritten, err
	}
	texts := make([]string, len(unwritten))
	for i, n := range unwritten {
		texts[i] = n.String()
	}
	return nil, &hinted.Error{
		Err: fmt.Errorf("--prune would delete everything that a directory with the name %q brought: %s", name,
			strings.Join(texts, ", ")),
		Hint: "If that was another directory, choose another --name for this one. Otherwise delete these objects " +
			"first: berth delete " + strings.Join(texts, " "),
	}
}

// checkOwnership refuses changes of what a directory with another name brought.
func checkOwnership(reply api.ApplyReply) error {
	var others []string
	for _, c := range reply.Changes {
		for _, f := range c.Fields {
			if strings.HasPrefix(f.Path, "labels") && strings.Contains(f.Path, convergeLabel) && f.Old != "" {
				others = append(others, fmt.Sprintf("%s was brought by the directory %s", changeName(c), f.Old))
			}
		}
	}
	if len(others) == 0 {
		return nil
	}
	return &hinted.Error{
		Err: errors.New(strings.Join(others, "; ")),
		Hint: "Two directories must not have the same object: remove it from one of them, or take the label " +
			convergeLabel + " out of the object with 'berth edit' to move it.",
	}
}

// note replaces the objects of the result.
func (r *convergeResult) note(plan planReply) {
	r.Objects = make([]convergedObject, 0, len(plan.Changes)+len(plan.Delete))
	for _, c := range plan.Changes {
		r.Objects = append(r.Objects, convergedObject{changeName(c), c.Action, c.Fields, c.Effect})
	}
	for _, name := range plan.Delete {
		r.Objects = append(r.Objects, convergedObject{Object: name, Action: actionDelete})
	}
	r.Changed = slices.ContainsFunc(r.Objects, func(o convergedObject) bool { return o.Action != api.ActionNone })
}

// await waits until services are healthy and jobs have succeeded.
func (v *convergeCommand) await(ctx context.Context, c *client.Client, targets []*wait.Target,
	r *convergeResult,
) error {
	if len(targets) == 0 {
		return nil
	}
	const goesOn = "the applied objects continue. See 'berth status'."
	w := wait.Waiter{Session: v.Session, Client: c, Targets: targets, Timeout: v.timeout}
	if !v.WantsData() {
		return w.Await(ctx, goesOn)
	}
	if err := w.Wait(ctx); err != nil {
		return v.StoppedWaiting(ctx, err, goesOn)
	}
	unmet, err := w.Unmet(ctx)
	if err != nil || len(unmet) == 0 {
		return err
	}
	texts := make([]string, len(unmet))
	for i, u := range unmet {
		texts[i] = u.Object + " " + u.Why
	}
	r.Failure = &convergeFailure{Message: strings.Join(texts, "; "), Unhealthy: unmet}
	return &session.ExitError{Code: session.ExitNo, Err: errors.New(r.Failure.Message)}
}
