package apply

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/blockyaml"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/wait"
	"github.com/berthd/berth/internal/cli/written"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/manifest"
	"github.com/berthd/berth/internal/wording"
)

const editLong = "Open the manifest of an object in an editor (VISUAL, EDITOR or vi), and apply the edited text.\n" +
	"The manifest is what 'berth inspect --as-written --reveal' prints of the object itself. If the text has\n" +
	"faults, the editor opens again with the faults at the top.\n\n" +
	"The command changes nothing if the text is empty or the same, or if somebody else changed the object\n" +
	"meanwhile. A text that cannot be applied is kept in a file. An interrupt while the editor runs is for the\n" +
	"editor. One after it ends the command, and the text is kept. After the change of a service or job, the\n" +
	"command waits as 'berth run' does."

// editCommand is `berth edit`.
type editCommand struct {
	*session.Session
	detach bool
}

// NewEditCommand returns the command `berth edit`.
func NewEditCommand(sess *session.Session) *cobra.Command {
	e := &editCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "edit NAME|KIND/NAME", Short: "Change an object in an editor", Long: editLong,
		Args:              session.Arguments(1, 1, "one object, such as web or service/web"),
		ValidArgsFunction: sess.CompleteObjects(1, deletableKinds()...),
		RunE:              e.run,
	}
	session.AddDetachFlag(cmd, &e.detach)
	return cmd
}

func (e *editCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	c, err := e.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	n, err := e.FindObject(cmd, c, args[0], deletableKinds()...)
	if err != nil {
		return err
	}
	o, err := readEditable(ctx, c, n)
	if err != nil {
		return err
	}
	revision, changed, err := e.edit(ctx, c, o)
	if err != nil || !changed {
		return err
	}
	e.Messagef("changed %s", o.name)
	if e.detach || o.name.Kind != wording.KindService && o.name.Kind != wording.KindJob {
		return nil
	}
	w := wait.Waiter{
		Session: e.Session, Client: c,
		Targets: []*wait.Target{{Name: o.name, Revision: revision, MinGeneration: o.generation}},
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	return w.Await(ctx, "the change continues. See 'berth status "+o.name.String()+"'.")
}

// untilInterrupted returns a context that the next interrupt or SIGTERM ends. A signal that came while the editor ran,
// and ended parent, does not count. A second signal ends the program immediately. Call stop after the work.
func untilInterrupted(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = signal.NotifyContext(context.WithoutCancel(parent), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// editable is an object as its user wrote it, at a revision.
type editable struct {
	name     session.Name
	text     string
	revision uint64
	// generation is that of a service, otherwise 0.
	generation uint64
}

// readEditable reads the object with a name.
func readEditable(ctx context.Context, c *client.Client, n session.Name) (o editable, err error) {
	if n, err = n.Resolve(ctx, c); err != nil {
		return o, err
	}
	var object any
	switch n.Kind {
	case wording.KindService:
		v, err := n.Service(ctx, c)
		if err != nil {
			return o, err
		}
		object, o.revision, o.generation = &v.Service, v.Revision, v.Generation
	case wording.KindJob:
		v, err := n.Job(ctx, c)
		if err != nil {
			return o, err
		}
		object, o.revision = &v.Job, v.Revision
	case wording.KindCron:
		v, err := n.Cron(ctx, c)
		if err != nil {
			return o, err
		}
		object, o.revision = &v.Cron, v.Revision
	case wording.KindEndpoint:
		v, err := n.Endpoint(ctx, c)
		if err != nil {
			return o, err
		}
		object, o.revision = &v.Endpoint, v.Revision
	case wording.KindCluster:
		v, err := session.FindCluster(ctx, c, n.Name)
		if err != nil {
			return o, err
		}
		object, o.revision = &v.Cluster, v.Revision
	default:
		v, err := session.FindPool(ctx, c, n.Name)
		if err != nil {
			return o, err
		}
		object, o.revision = &v.Pool, v.Revision
	}
	o.name = n
	o.text, err = manifestText(ctx, c, object)
	return o, err
}

// manifestText returns the manifest of an object as YAML, with its templates.
func manifestText(ctx context.Context, c *client.Client, object any) (string, error) {
	var failed error
	object, _ = written.WithTemplates(object, func(ref cluster.Ref) *cluster.TaskDefinition {
		d, err := c.RevealedDefinition(ctx, ref)
		if err != nil {
			failed = errors.Join(failed, fetch.IgnoreNotFound(err))
			return nil
		}
		return &d.TaskDefinition
	})
	if failed != nil {
		return "", failed
	}
	document, err := written.Manifest(object)
	if err != nil {
		return "", err
	}
	text, err := blockyaml.FromJSON(document)
	return string(text), err
}

// edit lets the user edit an object until the server takes the text. It returns the revision of the write, and whether
// there was one.
func (e *editCommand) edit(ctx context.Context, c *client.Client, o editable) (revision uint64, changed bool,
	err error,
) {
	file, err := os.CreateTemp("", "berth-edit-*.yaml")
	if err != nil {
		return 0, false, fmt.Errorf("make a file for the editor: %w", err)
	}
	path := file.Name()
	if err := file.Close(); err != nil {
		return 0, false, fmt.Errorf("make a file for the editor: %w", err)
	}
	text, faults := o.text, manifest.Faults(nil)
	for {
		edited, err := e.openEditor(ctx, path, e.Shorten(editHeader(o.name, faults))+text)
		switch {
		case err != nil:
			return 0, false, keepText(path, o, edited, err)
		case strings.TrimSpace(edited) == "", edited == o.text:
			e.Messagef("%s: nothing changed", o.name)
			return 0, false, os.Remove(path)
		case len(faults) > 0 && edited == text:
			return 0, false, keepText(path, o, edited,
				fmt.Errorf("%s was not changed: the text has the same faults:\n  %s", o.name,
					strings.Join(faultTexts(faults, 0), "\n  ")))
		}
		text = edited
		writing, stop := untilInterrupted(ctx)
		revision, err = o.apply(writing, c, text)
		interrupted := writing.Err() != nil
		stop()
		found, faulty := errors.AsType[manifest.Faults](err)
		switch {
		case err != nil && interrupted:
			return 0, false, &session.ExitError{Code: session.ExitInterrupted, Err: keepText(path, o, text,
				fmt.Errorf("interrupted before the server answered: %s may have been changed", o.name))}
		case faulty:
			faults = found
		case client.StatusOf(err) == http.StatusPreconditionFailed:
			return 0, false, keepText(path, o, text,
				fmt.Errorf("%s was not changed: somebody else changed it meanwhile", o.name))
		case err != nil:
			return 0, false, keepText(path, o, text, err)
		default:
			return revision, true, os.Remove(path)
		}
	}
}

// keepText keeps an edited text, and adds its place to the error. A text that was not edited is removed.
func keepText(path string, o editable, text string, err error) error {
	if text == "" || text == o.text {
		return errors.Join(err, os.Remove(path))
	}
	if failed := os.WriteFile(path, []byte(text), 0o600); failed != nil {
		return errors.Join(err, failed)
	}
	return &hinted.Error{Err: err, Hint: "The edited text is in " + path + "."}
}

// headerLines is the number of lines of a header without faults.
const headerLines = 2

// editHeader returns the comments above a text in the editor. The places of faults count the lines of the header.
func editHeader(n session.Name, faults manifest.Faults) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Edit %s, save the text and end the editor. An empty or unchanged text changes nothing.\n"+
		"# Berth removes the comments at the top.\n", n)
	if len(faults) == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "# %s:\n", wording.Count(len(faults), "fault"))
	for _, text := range faultTexts(faults, headerLines+1+len(faults)) {
		b.WriteString("#   " + text + "\n")
	}
	return b.String()
}

// faultTexts returns a line for each fault. Its place counts the given lines above the text.
func faultTexts(faults manifest.Faults, linesAbove int) []string {
	texts := make([]string, len(faults))
	for i, f := range faults {
		place := ""
		if f.Line > 0 {
			place = fmt.Sprintf("line %d, column %d", f.Line+linesAbove, f.Column)
		}
		texts[i] = wording.JoinNonEmpty(": ", place, f.Path, wording.OneLine(f.Message))
	}
	return texts
}

// openEditor lets the user edit a text in a file. It returns the edited text without the comments at its top. While the
// editor runs, interrupts are for the editor alone.
func (e *editCommand) openEditor(ctx context.Context, path, text string) (string, error) {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write the text for the editor: %w", err)
	}
	const usual = "vi"
	editor := cmp.Or(strings.TrimSpace(e.Env("VISUAL")), strings.TrimSpace(e.Env("EDITOR")), usual)
	if in, ok := e.Stdin.(*os.File); editor == usual && (!ok || !term.IsTerminal(int(in.Fd()))) {
		return "", &hinted.Error{
			Err: errors.New("the editor vi needs a terminal, and standard input is not a terminal"),
			Hint: "Name an editor that needs none in EDITOR, or save 'berth inspect NAME --as-written' in a file, " +
				"change the file, and give it to 'berth run'.",
		}
	}
	// the variable is a command line, such as "code --wait"
	run := exec.CommandContext(context.WithoutCancel(ctx), "sh", "-c", editor+` "$1"`, "edit", path)
	run.Stdin, run.Stdout, run.Stderr = e.Stdin, e.Stdout, e.Stderr
	// A terminal sends an interrupt to the editor and to Berth, and a second one would end Berth. The channel is never
	// read: while it is registered, interrupts do not end the process.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	failed := run.Run()
	signal.Stop(interrupts)
	edited, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the edited text: %w", err)
	}
	for bytes.HasPrefix(edited, []byte("#")) {
		_, edited, _ = bytes.Cut(edited, []byte("\n"))
	}
	if failed != nil {
		return string(edited), &hinted.Error{
			Err:  fmt.Errorf("the editor %q failed: %w", editor, failed),
			Hint: "Name another editor in VISUAL or EDITOR.",
		}
	}
	return string(edited), nil
}

// apply writes an edited text, unless the object has changed. Faults of the text are a manifest.Faults.
func (o *editable) apply(ctx context.Context, c *client.Client, text string) (revision uint64, err error) {
	objects, err := manifest.Read(strings.NewReader(text), manifest.Stdin)
	if err != nil {
		return 0, err
	}
	if len(objects) != 1 || objectName(&objects[0]) != o.name {
		return 0, manifest.Faults{{Message: "the text must be of " + o.name.String() + " alone: its kind, cluster " +
			"and name cannot be changed"}}
	}
	revision, err = putObject(ctx, c, objects[0].Value, client.Condition{Revision: o.revision})
	if refused, ok := errors.AsType[*client.Error](err); ok && len(refused.Faults) > 0 {
		var faults manifest.Faults
		for _, f := range refused.Faults {
			faults = append(faults, manifest.Fault{Position: objects[0].At(f.Path), Path: f.Path, Message: f.Message})
		}
		return 0, faults
	}
	return revision, err
}

// putObject writes one object.
func putObject(ctx context.Context, c *client.Client, object any, cond client.Condition) (uint64, error) {
	switch v := object.(type) {
	case *cluster.Service:
		return c.PutService(ctx, *v, cond)
	case *cluster.Job:
		return c.PutJob(ctx, *v, cond)
	case *cluster.Cron:
		return c.PutCron(ctx, *v, cond)
	case *cluster.Endpoint:
		return c.PutEndpoint(ctx, *v, cond)
	case *cluster.Cluster:
		return c.PutCluster(ctx, *v, cond)
	case *cluster.Pool:
		return c.PutPool(ctx, *v, cond)
	}
	return 0, fmt.Errorf("a %T cannot be edited", object)
}
