package apply

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/manifest"
	"github.com/berthd/berth/internal/wording"
)

const diffLong = "Show differences field by field:\n\n" +
	"  berth diff web           the newest version of the task definition web and the one before\n" +
	"  berth diff web 2         version 2 and the newest version\n" +
	"  berth diff web 2 5       version 2 and version 5\n" +
	"  berth diff web.yaml      the objects in the cluster and those in a manifest\n\n" +
	"FILE is a manifest, a folder of manifests, or - for standard input. Write a folder with a slash,\n" +
	"such as ./web, so that it differs from a name. For a service, the command compares the definition in\n" +
	"the file with every version that tasks still run. See also 'berth plan' for what 'berth run' would\n" +
	"do, and 'berth rollout history --diff' for the changes of each rollout.\n\n" +
	"Exit code 0: no differences; 1: differences; 2: an error."

// diffCommand is `berth diff`.
type diffCommand struct{ *session.Session }

// NewDiffCommand returns the command `berth diff`.
func NewDiffCommand(sess *session.Session) *cobra.Command {
	d := &diffCommand{sess}
	return &cobra.Command{
		Use:   "diff DEFINITION [V1 [V2]] | FILE...",
		Short: "Compare versions, or a manifest with the cluster", Long: diffLong,
		Args: session.Arguments(1, -1, "a task definition with up to two versions, or the file of "+
			"a manifest"),
		ValidArgsFunction: fetch.CompleteVersions(sess),
		RunE:              d.run,
	}
}

func (d *diffCommand) run(cmd *cobra.Command, args []string) error {
	if fetch.IsFileArgument(args[0]) {
		return printFileDiff(cmd.Context(), d.Session, args)
	}
	if len(args) > 3 {
		return session.Arguments(1, 3, "a task definition with up to two versions")(cmd, args)
	}
	ref, versions, err := parseDiffArguments(d.Session, cmd, args)
	if err != nil {
		return err
	}
	return printVersionDiff(cmd.Context(), d.Session, ref, versions)
}

// parseDiffArguments reads a definition name and up to two versions. In web@2 the first version is part of the name.
func parseDiffArguments(sess *session.Session, cmd *cobra.Command, args []string) (ref cluster.Ref, versions []int,
	err error,
) {
	n, err := sess.ParseName(cmd, args[0], wording.KindDefinition)
	if err != nil {
		return ref, nil, err
	}
	if ref, err = cluster.ParseRef(n.Name); err != nil {
		return ref, nil, &session.UsageError{Command: cmd.CommandPath(), Message: err.Error()}
	}
	if ref.Version > 0 {
		versions = append(versions, ref.Version)
	}
	for _, text := range args[1:] {
		version, err := strconv.Atoi(strings.TrimPrefix(text, ref.Name+"@"))
		if err != nil || version < 1 {
			return ref, nil, &session.UsageError{
				Command: cmd.CommandPath(),
				Message: fmt.Sprintf("%q is not a version: want a number such as 2", text),
			}
		}
		versions = append(versions, version)
	}
	if len(versions) > 2 {
		return ref, nil, &session.UsageError{
			Command: cmd.CommandPath(),
			Message: fmt.Sprintf("%s compares two versions, found also %q", cmd.CommandPath(), args[len(args)-1]),
		}
	}
	return ref, versions, nil
}

func printVersionDiff(ctx context.Context, sess *session.Session, ref cluster.Ref, versions []int) error {
	c, err := sess.Connect()
	if err != nil {
		return err
	}
	from, to := 0, 0
	switch len(versions) {
	case 2:
		from, to = versions[0], versions[1]
	case 1:
		from = versions[0]
	}
	if to == 0 {
		if to, err = fetch.NewestVersion(ctx, c, ref.Name); err != nil {
			return err
		}
	}
	v, err := c.DiffVersions(ctx, cluster.Ref{Name: ref.Name, Version: to}, from)
	if err != nil {
		return err
	}
	if sess.WantsData() {
		err = sess.PrintData(v)
	} else {
		printDefinitionDiff(sess, v, "", "")
	}
	if err == nil && len(v.Fields) > 0 {
		return &session.ExitError{Code: session.ExitNo}
	}
	return err
}

// printDefinitionDiff prints the fields in which two definitions differ. The text who contains how many tasks run the
// first one.
func printDefinitionDiff(sess *session.Session, v api.DefinitionDiff, indent, who string) {
	if v.From == (cluster.Ref{}) {
		sess.Printf("%s%s", indent, v.Note)
		return
	}
	sess.Printf("%s%s%s → %s", indent, v.From, who, v.To)
	for _, f := range v.Fields {
		sess.Printf("%s    %s: %s", indent, f.Path, output.FormatChange(f))
	}
	if v.Note != "" {
		sess.Printf("%s    %s", indent, v.Note)
	}
}

// objectDiff lists the differences between an object in a file and the object on the server.
type objectDiff struct {
	Object string     `json:"object"`
	Action api.Action `json:"action"`
	// Fields are the differences of the object itself. The old value is the server's.
	Fields []api.FieldChange `json:"fields,omitempty"`
	// Definitions compares the definition in the file with each version that the object requests or runs.
	Definitions []definitionDiff `json:"definitions,omitempty"`
}

// definitionDiff compares one version with the definition in the file. Running counts the tasks of that version.
type definitionDiff struct {
	api.DefinitionDiff
	Running int `json:"running"`
}

func (d *objectDiff) differs() bool {
	return d.Action != api.ActionNone || slices.ContainsFunc(d.Definitions, func(r definitionDiff) bool {
		return len(r.Fields) > 0
	})
}

// printFileDiff compares the objects in files with those on the server.
func printFileDiff(ctx context.Context, sess *session.Session, files []string) error {
	objects, err := ReadManifests(sess, files)
	if err != nil {
		return err
	}
	c, err := sess.Connect()
	if err != nil {
		return err
	}
	reply, err := sendObjects(ctx, c, objects, true)
	if err != nil {
		return err
	}
	diffs := []objectDiff{}
	differ := false
	for _, change := range reply.Changes {
		if change.Kind == cluster.KindTaskDefinition && slices.ContainsFunc(objects, func(o manifest.Object) bool {
			return usesDefinition(o, change.Name)
		}) {
			continue // the objects that use the definition show its differences
		}
		d := objectDiff{Object: changeName(change), Action: change.Action, Fields: change.Fields}
		if d.Definitions, err = compareRunning(ctx, c, change, objects); err != nil {
			return err
		}
		differ = differ || d.differs()
		diffs = append(diffs, d)
	}
	if sess.WantsData() {
		err = sess.PrintData(diffs)
	} else {
		printDiffs(sess, diffs)
	}
	if err == nil && differ {
		return &session.ExitError{Code: session.ExitNo}
	}
	return err
}

func printDiffs(sess *session.Session, diffs []objectDiff) {
	for _, d := range diffs {
		switch {
		case d.Action == api.ActionCreate:
			sess.Printf("%s is new", d.Object)
		case !d.differs():
			sess.Printf("%s is the same as in the file", d.Object)
		default:
			sess.Printf("%s differs", d.Object)
		}
		for _, f := range d.Fields {
			sess.Printf("    %s: %s", f.Path, output.FormatChange(f))
		}
		for _, r := range d.Definitions {
			if len(r.Fields) == 0 {
				continue
			}
			printDefinitionDiff(sess, r.DefinitionDiff, "  ", fmt.Sprintf(" (%s)", runningText(r.Running)))
		}
	}
}

func runningText(n int) string {
	switch n {
	case 0:
		return "no task runs it"
	case 1:
		return "1 task runs it"
	}
	return strconv.Itoa(n) + " tasks run it"
}

// usesDefinition reports whether an object of a file runs the definition.
func usesDefinition(o manifest.Object, ref string) bool {
	return slices.ContainsFunc(definitionsOf(o), func(r cluster.Ref) bool { return r.String() == ref })
}

// definitionsOf returns the references of an object to definitions. The changes of an apply compare its templates.
func definitionsOf(o manifest.Object) (refs []cluster.Ref) {
	switch v := o.Value.(type) {
	case *cluster.Service:
		refs = []cluster.Ref{v.Definition}
	case *cluster.Job:
		refs = fetch.DefinitionRefs(v.Steps)
	case *cluster.Cron:
		refs = fetch.DefinitionRefs(v.Job.Steps)
	}
	return slices.DeleteFunc(refs, func(r cluster.Ref) bool { return r == cluster.Ref{} })
}

// compareRunning compares the definitions that an object of a file requests with the versions that the server's object
// requests or runs.
func compareRunning(ctx context.Context, c *client.Client, change api.Change,
	objects []manifest.Object,
) ([]definitionDiff, error) {
	i := slices.IndexFunc(objects, func(o manifest.Object) bool {
		return o.Kind == change.Kind && o.Name() == change.Name && o.Cluster() == change.Cluster
	})
	if i < 0 || change.Action == api.ActionCreate {
		return nil, nil
	}
	current, err := listCurrentRefs(ctx, c, change)
	if err != nil {
		return nil, err
	}
	var all []definitionDiff
	for _, want := range definitionsOf(objects[i]) {
		def := findDefinition(objects, want)
		for _, s := range current {
			if s.ref.Name != want.Name {
				continue
			}
			d, err := compareDefinitions(ctx, c, s.ref, want, def)
			if err != nil {
				return nil, err
			}
			all = append(all, definitionDiff{d, s.running})
		}
	}
	return all, nil
}

// compareDefinitions compares two versions of a definition. The wanted one is def unless that is nil, else a version on
// the server.
func compareDefinitions(ctx context.Context, c *client.Client, from, want cluster.Ref,
	def *cluster.TaskDefinition,
) (api.DefinitionDiff, error) {
	if def != nil {
		return c.DiffDefinition(ctx, from, *def)
	}
	if want.Version == 0 {
		newest, err := fetch.NewestVersion(ctx, c, want.Name)
		if err != nil {
			return api.DefinitionDiff{}, err
		}
		want.Version = newest
	}
	return c.DiffVersions(ctx, want, from.Version)
}

// findDefinition returns the definition in a file that a reference names, or nil. A reference without a version names
// the newest.
func findDefinition(objects []manifest.Object, ref cluster.Ref) (found *cluster.TaskDefinition) {
	for _, o := range objects {
		d, ok := o.Value.(*cluster.TaskDefinition)
		if ok && d.Name == ref.Name &&
			(d.Version == ref.Version || ref.Version == 0 && (found == nil || d.Version > found.Version)) {
			found = d
		}
	}
	return found
}

// currentRef is a version that the server's object requests, with the number of tasks that run it.
type currentRef struct {
	ref     cluster.Ref
	running int
}

// listCurrentRefs returns the versions that the server's object requests or runs.
func listCurrentRefs(ctx context.Context, c *client.Client, change api.Change) (all []currentRef, err error) {
	add := func(ref cluster.Ref, running int) {
		if i := slices.IndexFunc(all, func(s currentRef) bool { return s.ref == ref }); i >= 0 {
			all[i].running += running
		} else {
			all = append(all, currentRef{ref, running})
		}
	}
	switch change.Kind {
	case cluster.KindService:
		v, err := c.Service(ctx, change.Cluster, change.Name)
		if err != nil {
			return nil, fetch.IgnoreNotFound(err)
		}
		add(v.Definition, 0)
		for _, version := range v.Status.Versions {
			if version.Begun > 0 || version.Definition == v.Definition {
				add(version.Definition, version.Begun)
			}
		}
	case cluster.KindJob:
		v, err := c.Job(ctx, change.Cluster, change.Name)
		if err != nil {
			return nil, fetch.IgnoreNotFound(err)
		}
		for _, ref := range fetch.DefinitionRefs(v.Steps) {
			add(ref, 0)
		}
		tasks, err := fetch.ListTasks(ctx, c,
			session.Name{Kind: wording.KindJob, Cluster: change.Cluster, Name: change.Name}, false)
		if err != nil {
			return nil, err
		}
		for _, t := range tasks {
			if t.State == cluster.StateRunning {
				add(t.Definition, 1)
			}
		}
	case cluster.KindCron:
		v, err := c.Cron(ctx, change.Cluster, change.Name)
		if err != nil {
			return nil, fetch.IgnoreNotFound(err)
		}
		for _, ref := range fetch.DefinitionRefs(v.Job.Steps) {
			add(ref, 0)
		}
	}
	return all, nil
}
