package resource

import (
	"cmp"
	"errors"
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
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/wording"
)

// NewVolumeCommand returns the command `berth volume`.
func NewVolumeCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "volume", Short: "List and remove the volumes that nodes keep",
		Args: cobra.ArbitraryArgs, RunE: sess.RunGroup,
	}
	cmd.AddCommand(newVolumeListCommand(sess), newVolumeRemoveCommand(sess), newVolumePruneCommand(sess))
	return cmd
}

func newVolumeListCommand(sess *session.Session) *cobra.Command {
	var node string
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List volumes: what they take, who uses them, whose they are",
		Long: "List the volumes that nodes keep for tasks, and the folders that they declare (--host-volume " +
			"of berth agent).\n\n" +
			"What a volume takes is counted now and then, at the lowest priority; of declared folders it is " +
			"not. Free is what is left of its file\n" +
			"system, or of the quota that is set for it.",
		Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			reply, err := c.Volumes(cmd.Context(), node)
			if err != nil {
				return err
			}
			return printVolumes(sess, reply)
		},
	}
	cmd.Flags().StringVar(&node, "node", "", "only this `node`; default all")
	session.RegisterCompletion(cmd, "node", sess.CompleteNames(wording.KindNode))
	return cmd
}

func newVolumeRemoveCommand(sess *session.Session) *cobra.Command {
	var r api.VolumeRemove
	cmd := &cobra.Command{
		Use: "rm NAME... --node NODE", Short: "Remove volumes from a node, with their data",
		Long: "Remove volumes that a node keeps, with all that is in them, by the names that 'berth volume " +
			"ls' prints. One that a task uses is never\n" +
			"removed. One whose service or job is there goes only with --force: the next task would begin " +
			"with an empty one.",
		Args: session.Arguments(1, -1, "a volume, such as default/db/data"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.Node == "" {
				return &session.UsageError{
					Command: cmd.CommandPath(),
					Message: "--node is missing: several nodes may keep a volume of one name",
				}
			}
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			for _, name := range args {
				ask := r
				ask.Name = name
				v, err := c.RemoveVolume(cmd.Context(), ask)
				if e, ok := errors.AsType[*client.Error](err); ok && e.Status == http.StatusConflict {
					return &hinted.Error{Err: err, Hint: "Delete its owner first, or say --force."}
				}
				if err != nil {
					return err
				}
				sess.Messagef("Removed %s from %s%s.", v.Name, v.Node, sizeText(&v, ": %s"))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&r.Node, "node", "", "the `node` that keeps them")
	cmd.Flags().BoolVar(&r.Force, "force", false, "also where their service or job is there")
	session.RegisterCompletion(cmd, "node", sess.CompleteNames(wording.KindNode))
	return cmd
}

func newVolumePruneCommand(sess *session.Session) *cobra.Command {
	var node string
	var unused time.Duration
	var dry bool
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove volumes whose service or job is deleted, with their data",
		Long: "Remove the volumes whose service or job is deleted and that no task uses, with all that is " +
			"in them. Nothing else removes a volume: what\n" +
			"an owner wrote stays on its nodes until somebody says that it can go.",
		Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			reply, err := c.Volumes(cmd.Context(), node)
			if err != nil {
				return err
			}
			var freed cluster.Bytes
			gone := 0
			faults := reply.Faults
			for i := range reply.Items {
				v := &reply.Items[i]
				if v.Name == "" || v.Owner != "" || len(v.By) > 0 || time.Since(v.Until) < unused {
					continue
				}
				if dry {
					sess.Messagef("%s on %s would be removed%s.", v.Name, v.Node, sizeText(v, ": %s"))
				} else if _, err := c.RemoveVolume(cmd.Context(),
					api.VolumeRemove{Node: v.Node, Name: v.Name}); err != nil {
					faults = append(faults, cluster.Fault{Path: v.Node, Message: err.Error()})
					continue
				} else {
					sess.Messagef("Removed %s from %s%s.", v.Name, v.Node, sizeText(v, ": %s"))
				}
				gone++
				freed += v.Used
			}
			fate := "removed"
			if dry {
				fate = "would be removed"
			}
			sess.Messagef("%s %s, %s.", wording.Count(gone, "volume"), fate, output.Size(freed))
			return printImageFaults(sess, faults, "could not be asked, or kept what was to go")
		},
	}
	cmd.Flags().StringVar(&node, "node", "", "only on this `node`; default all")
	cmd.Flags().DurationVar(&unused, "unused-for", 0, "only what no task used for this `duration`")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "remove nothing; tell what would go")
	session.RegisterCompletion(cmd, "node", sess.CompleteNames(wording.KindNode))
	return cmd
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
	case len(reply.Items) > 0:
		if err := sess.PrintTable(volumeTable(sess, reply.Items)); err != nil {
			return err
		}
	case len(reply.Faults) == 0:
		sess.Messagef("No volumes.")
	}
	return printImageFaults(sess, reply.Faults, "could not be asked")
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
			by = append(by, wording.ShortTask(id))
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
