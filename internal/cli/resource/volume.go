package resource

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// NewVolumeCommand returns the command `berth volume`.
func NewVolumeCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "volume", Short: "Manage the volumes on nodes",
		Args: cobra.ArbitraryArgs, RunE: session.RunGroup,
	}
	cmd.AddCommand(newVolumeListCommand(sess), newVolumeRemoveCommand(sess), newVolumePruneCommand(sess))
	return cmd
}

// volumeListCommand is `berth volume ls`.
type volumeListCommand struct {
	*session.Session
	node string
}

func newVolumeListCommand(sess *session.Session) *cobra.Command {
	v := &volumeListCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List volumes with their size, owner and users",
		Long: "List the volumes that nodes keep for tasks, and the folders that nodes declare (--host-volume of\n" +
			"berth agent).\n\n" +
			"Nodes measure the size of a volume from time to time, at the lowest priority, but not the size of\n" +
			"declared folders. FREE is the free space of the file system, or the rest of the quota of the volume.",
		Args: session.Arguments(0, 0, ""),
		RunE: sess.WithClient(v.run),
	}
	addNodeFlag(sess, cmd, &v.node)
	return cmd
}

func (v *volumeListCommand) run(ctx context.Context, c *client.Client, _ []string) error {
	reply, err := c.Volumes(ctx, v.node)
	if err != nil {
		return err
	}
	if in := v.ChosenCluster(); in != "" {
		reply.Items = slices.DeleteFunc(reply.Items, func(item api.VolumeView) bool {
			return item.Name != "" && !strings.HasPrefix(item.Name, in+"/")
		})
	}
	return printVolumes(v.Session, reply)
}

// volumeRemoveCommand is `berth volume rm`.
type volumeRemoveCommand struct {
	*session.Session
	request api.VolumeRemove
}

func newVolumeRemoveCommand(sess *session.Session) *cobra.Command {
	r := &volumeRemoveCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "rm NAME... --node NODE", Short: "Remove volumes from a node, with their data",
		Long: "Remove volumes from a node with all their data, by the names from 'berth volume ls'. A volume that a\n" +
			"task uses is never removed. A volume whose service or job exists requires --force: the next task\n" +
			"would begin with an empty volume.",
		Args: session.Arguments(1, -1, "a volume, such as default/db/data"),
		RunE: r.run,
	}
	cmd.Flags().StringVar(&r.request.Node, "node", "", "the `node` with the volumes")
	cmd.Flags().BoolVar(&r.request.Force, "force", false, "also remove volumes whose service or job exists")
	session.RegisterCompletion(cmd, "node", sess.CompleteNames(wording.KindNode))
	return cmd
}

func (r *volumeRemoveCommand) run(cmd *cobra.Command, args []string) error {
	if r.request.Node == "" {
		return &session.UsageError{
			Command: cmd.CommandPath(),
			Message: "--node is missing: several nodes may have a volume with this name",
		}
	}
	c, err := r.Connect()
	if err != nil {
		return err
	}
	for _, name := range args {
		ask := r.request
		ask.Name = name
		v, err := c.RemoveVolume(cmd.Context(), ask)
		if err != nil {
			return session.HintOn(err, http.StatusConflict, "Delete its owner first, or confirm with --force.")
		}
		r.Messagef("Removed %s from %s%s.", v.Name, v.Node, sizeText(&v, ": %s"))
	}
	return nil
}

// volumePruneCommand is `berth volume prune`.
type volumePruneCommand struct {
	*session.Session
	node   string
	unused time.Duration
	dryRun bool
}

func newVolumePruneCommand(sess *session.Session) *cobra.Command {
	p := &volumePruneCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove volumes of deleted services and jobs, with their data",
		Long: "Remove the volumes of deleted services and jobs that no task uses, with all their data. Berth never\n" +
			"removes volumes by itself: the data of an owner stays on its nodes until you remove it.",
		Args: session.Arguments(0, 0, ""),
		RunE: sess.WithClient(p.run),
	}
	cmd.Flags().StringVar(&p.node, "node", "", "only on this `node`; default all")
	cmd.Flags().DurationVar(&p.unused, "unused-for", 0, "only volumes that no task used for this `duration`")
	cmd.Flags().BoolVar(&p.dryRun, "dry-run", false, "remove nothing; show what would be removed")
	session.RegisterCompletion(cmd, "node", sess.CompleteNames(wording.KindNode))
	return cmd
}

func (p *volumePruneCommand) run(ctx context.Context, c *client.Client, _ []string) error {
	reply, err := c.Volumes(ctx, p.node)
	if err != nil {
		return err
	}
	var freed cluster.Bytes
	gone := 0
	faults := reply.Faults
	for i := range reply.Items {
		v := &reply.Items[i]
		if v.Name == "" || v.Owner != "" || len(v.By) > 0 || time.Since(v.Until) < p.unused {
			continue
		}
		if p.dryRun {
			p.Messagef("%s on %s would be removed%s.", v.Name, v.Node, sizeText(v, ": %s"))
		} else if _, err := c.RemoveVolume(ctx,
			api.VolumeRemove{Node: v.Node, Name: v.Name}); err != nil {
			faults = append(faults, cluster.Fault{Path: v.Node, Message: err.Error()})
			continue
		} else {
			p.Messagef("Removed %s from %s%s.", v.Name, v.Node, sizeText(v, ": %s"))
		}
		gone++
		freed += v.Used
	}
	fate := "removed"
	if p.dryRun {
		fate = "would be removed"
	}
	p.Messagef("%s %s, %s.", wording.Count(gone, "volume"), fate, output.Size(freed))
	return printImageFaults(p.Session, faults, "could not be reached, or kept their volumes")
}

// sizeText formats the size of a volume, or returns "" if it is not known yet.
func sizeText(v *api.VolumeView, format string) string {
	if v.Counted.IsZero() {
		return ""
	}
	return fmt.Sprintf(format, output.Size(v.Used))
}

// printVolumes prints volumes. The error lists the nodes that did not answer.
func printVolumes(sess *session.Session, reply api.VolumesReply) error {
	slices.SortStableFunc(reply.Items, func(x, y api.VolumeView) int {
		return cmp.Or(cmp.Compare(x.HostVolume, y.HostVolume), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Node, y.Node))
	})
	switch {
	case sess.WantsData():
		if err := sess.PrintData(output.EmptyIfNil(reply.Items)); err != nil {
			return err
		}
	case len(reply.Items) > 0 && sess.Format == output.OutputName:
		if err := session.PrintNames(sess, reply.Items); err != nil {
			return err
		}
	case len(reply.Items) > 0:
		if err := sess.PrintTable(volumeTable(sess, reply.Items)); err != nil {
			return err
		}
	case len(reply.Faults) == 0:
		sess.Messagef("No volumes.")
	}
	return printImageFaults(sess, reply.Faults, "could not be reached")
}

func volumeTable(sess *session.Session, items []api.VolumeView) output.Table {
	t := output.Table{Titles: []string{"VOLUME", "NODE", "USED>", "FREE>", "KIND", "OWNER", "USED BY"}}
	wide := sess.Format == output.OutputWide
	if wide {
		t.Titles = append(t.Titles, "PATH")
	}
	for i := range items {
		v := &items[i]
		var by []string
		for _, id := range v.By {
			by = append(by, string(id))
		}
		uses := strings.Join(by, " ")
		if uses == "" && !v.Until.IsZero() {
			uses = sess.Age(v.Until) + " ago"
		}
		row := []string{
			cmp.Or(v.Name, v.HostVolume), v.Node, cmp.Or(sizeText(v, "%s"), "-"), output.Size(v.Free), volumeKind(v),
			v.Owner,
			cmp.Or(uses, "-"),
		}
		if row[5] == "" {
			row[5] = "-"
			if v.Name != "" {
				row[5] = "deleted"
			}
		}
		if wide {
			row = append(row, v.Path)
		}
		t.Add(row...)
	}
	return t
}

// volumeKind describes the kind of a volume in a few words.
func volumeKind(v *api.VolumeView) string {
	var words []string
	if v.HostVolume != "" {
		words = append(words, "host")
	}
	if v.Pin {
		words = append(words, "pin")
	}
	if v.Sticky {
		words = append(words, "sticky")
	}
	if v.ReadOnly {
		words = append(words, "read-only")
	}
	if len(words) == 0 {
		return "kept"
	}
	return strings.Join(words, ", ")
}
