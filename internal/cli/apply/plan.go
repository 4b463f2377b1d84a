package apply

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
)

// planCommand is `berth plan`.
type planCommand struct {
	*session.Session
	files files
	prune prune
}

// planReply is a plan as data.
type planReply struct {
	api.ApplyReply
	// Delete names what --prune would delete.
	Delete []string `json:"delete,omitempty"`
}

// NewPlanCommand returns the command `berth plan`.
func NewPlanCommand(sess *session.Session) *cobra.Command {
	p := &planCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "plan FILE...",
		Short: "Show what run would change; exit code 1 if there are changes",
		Long: "Show what run would change. Exit code 0: no changes; 1: changes; 2: an " +
			"error.\n\n" + pruneHelp + "\n\n" + filesHelp,
		Args:              p.files.arguments(),
		ValidArgsFunction: session.CompleteManifests,
		RunE:              p.run,
	}
	p.files.addFlag(cmd)
	p.prune.addFlags(cmd)
	return cmd
}

func (p *planCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	if err := p.prune.parse(cmd); err != nil {
		return err
	}
	objects, err := ReadManifests(p.Session, p.files.all(args))
	if err != nil {
		return err
	}
	c, err := p.Connect()
	if err != nil {
		return err
	}
	names, err := p.prune.find(ctx, c, objects)
	if err != nil {
		return err
	}
	var plan planReply
	if plan.ApplyReply, err = sendObjects(ctx, c, objects, true); err != nil {
		return err
	}
	for _, n := range names {
		plan.Delete = append(plan.Delete, n.String())
	}
	if p.WantsData() {
		err = p.PrintData(plan)
	} else {
		err = printPlan(p.Session, plan)
	}
	if err == nil && (len(names) > 0 || slices.ContainsFunc(plan.Changes, func(c api.Change) bool {
		return c.Action != api.ActionNone
	})) {
		return &session.ExitError{Code: session.ExitNo}
	}
	return err
}

// printPlan prints what an apply would change.
func printPlan(sess *session.Session, reply planReply) error {
	var b strings.Builder
	counts := map[api.Action]int{}
	color := sess.HasColors(sess.Stdout)
	paint := func(text, with string) string {
		if !color {
			return text
		}
		return output.Colored(text, with)
	}
	for _, c := range reply.Changes {
		counts[c.Action]++
		label := changeName(c)
		switch c.Action {
		case api.ActionCreate:
			fmt.Fprintf(&b, "%s\n", paint("+ create  "+label, output.Green))
		case api.ActionUpdate:
			fmt.Fprintf(&b, "%s\n", paint("~ update  "+label, output.Yellow))
		case api.ActionNone:
			if sess.Format == output.OutputWide {
				fmt.Fprintf(&b, "= keep    %s\n", label)
			}
			continue
		}
		if c.Action == api.ActionUpdate {
			for _, f := range c.Fields {
				fmt.Fprintf(&b, "    %s: %s\n", f.Path, output.FormatChange(f))
			}
		}
		if c.Effect != "" {
			fmt.Fprintf(&b, "    %s\n", c.Effect)
		}
	}
	for _, name := range reply.Delete {
		fmt.Fprintf(&b, "%s\n", paint("- delete  "+name, output.Red))
	}
	deletions := ""
	if n := len(reply.Delete); n > 0 {
		deletions = fmt.Sprintf(", %d to delete", n)
	}
	if counts[api.ActionCreate]+counts[api.ActionUpdate]+len(reply.Delete) == 0 {
		fmt.Fprintf(&b, "Nothing to do: %s as the manifest says.\n", objectsAre(counts[api.ActionNone]))
	} else {
		fmt.Fprintf(&b, "%d to create, %d to update%s, %d unchanged.\n",
			counts[api.ActionCreate], counts[api.ActionUpdate], deletions, counts[api.ActionNone])
	}
	_, err := sess.Stdout.Write([]byte(sess.Shorten(b.String())))
	return err
}

func objectsAre(n int) string {
	if n == 1 {
		return "1 object is"
	}
	return strconv.Itoa(n) + " objects are"
}

// changeName returns the argument by which commands name the object of a change.
func changeName(c api.Change) string {
	return session.Name{Kind: wordOf(c.Kind), Cluster: c.Cluster, Name: c.Name}.String()
}
