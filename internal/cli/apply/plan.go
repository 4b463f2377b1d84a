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
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// planCommand is `berth plan`.
type planCommand struct {
	*session.Session
	files files
}

// NewPlanCommand returns the command `berth plan`.
func NewPlanCommand(sess *session.Session) *cobra.Command {
	p := &planCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "plan FILE...",
		Short: "Show what run would change; exit code 1 if there are changes",
		Long: "Show what run would change. Exit code 0: no changes; 1: changes; 2: an " +
			"error.\n\n" + filesHelp,
		Args:              p.files.arguments(),
		ValidArgsFunction: session.CompleteManifests,
		RunE:              p.run,
	}
	p.files.addFlag(cmd)
	return cmd
}

func (p *planCommand) run(cmd *cobra.Command, args []string) error {
	reply, err := applyFiles(cmd.Context(), p.Session, p.files.all(args), true)
	if err != nil {
		return err
	}
	if p.WantsData() {
		err = p.PrintData(reply)
	} else {
		err = printPlan(p.Session, reply)
	}
	if err == nil && slices.ContainsFunc(reply.Changes, func(c api.Change) bool {
		return c.Action != api.ActionNone
	}) {
		return &session.ExitError{Code: session.ExitNo}
	}
	return err
}

// printPlan prints what an apply would change.
func printPlan(sess *session.Session, reply api.ApplyReply) error {
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
	if counts[api.ActionCreate]+counts[api.ActionUpdate] == 0 {
		fmt.Fprintf(&b, "Nothing to do: %s as the manifest says.\n", objectsAre(counts[api.ActionNone]))
	} else {
		fmt.Fprintf(&b, "%d to create, %d to update, %d unchanged.\n",
			counts[api.ActionCreate], counts[api.ActionUpdate], counts[api.ActionNone])
	}
	_, err := sess.Stdout.Write([]byte(b.String()))
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
	kind := map[cluster.Kind]string{
		cluster.KindCluster: wording.KindCluster, cluster.KindTaskDefinition: wording.KindDefinition,
		cluster.KindService: wording.KindService, cluster.KindJob: wording.KindJob, cluster.KindCron: wording.KindCron,
		cluster.KindPool: wording.KindPool,
	}[c.Kind]
	return session.Name{Kind: kind, Cluster: c.Cluster, Name: c.Name}.String()
}
