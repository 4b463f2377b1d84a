package resource

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/wait"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// imagePullCommand is `berth image pull`.
type imagePullCommand struct {
	*session.Session
	request api.ImagePull
}

func newImagePullCommand(sess *session.Session) *cobra.Command {
	i := &imagePullCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "pull IMAGE...",
		Short: "Pull images to nodes before tasks need them",
		Long: "Pull images to nodes, with the nodes' registry logins, before tasks need them. The command shows the\n" +
			"progress of each node and waits for the end. If a node already has an image, it checks the registry\n" +
			"and pulls the image again if the tag has changed.\n\n" +
			"With --keep the images are pinned: a node that needs disk space does not remove them. Only `berth\n" +
			"image prune --all` does.",
		Args: session.Arguments(1, -1, "an image, such as registry.example/app:1"),
		RunE: sess.WithClient(i.run),
	}
	addNodesFlag(sess, cmd, &i.request.Nodes)
	cmd.Flags().BoolVar(&i.request.Keep, "keep", false, "pin the images: they are not removed to make room")
	return cmd
}

func (i *imagePullCommand) run(ctx context.Context, c *client.Client, args []string) error {
	i.request.Images = args
	board := wait.NewPullProgress(i.Session)
	reply, err := c.FollowPull(ctx, i.request, board.Update)
	board.End()
	if ctx.Err() != nil {
		board.PrintUnfinished()
		return session.EndOfStream(ctx.Err())
	}
	if err != nil {
		return err
	}
	faults := reply.Faults
	if reply.Faults = nil; len(reply.Items) > 0 || len(faults) == 0 {
		if err := printImages(i.Session, reply); err != nil {
			return err
		}
	}
	return printImageFaults(i.Session, faults, "could not pull all images")
}

// imagePruneCommand is `berth image prune`.
type imagePruneCommand struct {
	*session.Session
	request api.ImagePrune
	unused  time.Duration
}

func newImagePruneCommand(sess *session.Session) *cobra.Command {
	i := &imagePruneCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove unused images from nodes",
		Long: "Remove images that no task of the node uses, the least recently used first, and list what each\n" +
			"frees, or why it stays. Images that were loaded by hand or pinned stay unless you give --all. An\n" +
			"image that a task uses or is about to use always stays.\n\n" +
			"Agents do this by themselves when the disk with the images becomes full: see --image-high of berth\n" +
			"agent and berth dev.",
		Args: session.Arguments(0, 0, ""),
		RunE: sess.WithClient(i.run),
	}
	addNodesFlag(sess, cmd, &i.request.Nodes)
	cmd.Flags().BoolVarP(&i.request.All, "all", "a", false, "also remove images that were loaded by hand or pinned")
	cmd.Flags().BoolVar(&i.request.DryRun, "dry-run", false, "remove nothing; show what would be removed")
	cmd.Flags().DurationVar(&i.unused, "unused-for", 0, "only images that were not used for this `duration`")
	return cmd
}

func (i *imagePruneCommand) run(ctx context.Context, c *client.Client, _ []string) error {
	i.request.Unused = cluster.Duration(i.unused)
	reply, err := c.PruneImages(ctx, i.request)
	if err != nil {
		return err
	}
	return printPruned(i.Session, reply, i.request.DryRun)
}

// printPruned prints the result for each image.
func printPruned(sess *session.Session, reply api.ImagePruneReply, dry bool) error {
	if sess.WantsData() {
		if err := sess.PrintData(output.EmptyIfNil(reply.Items)); err != nil {
			return err
		}
		return printImageFaults(sess, reply.Faults, "could not be reached")
	}
	fate := "removed"
	if dry {
		fate = "would be removed"
	}
	t := output.Table{Titles: []string{"IMAGE", "NODE", "FREES>", "USED>", "FATE"}}
	var freed cluster.Bytes
	gone := 0
	for i := range reply.Items {
		v := &reply.Items[i]
		end := "stays: " + v.Kept
		if v.Removed {
			end = fate
			freed += v.Size
			gone++
		}
		t.Add(imageNames(v.Names, sess.Format == output.OutputWide), v.Node, output.Size(v.Size), sess.Age(v.Used), end)
	}
	if len(reply.Items) > 0 {
		if err := sess.PrintTable(t); err != nil {
			return err
		}
	}
	if len(reply.Items) > 0 || len(reply.Faults) == 0 {
		sess.Messagef("%s %s, %s.", wording.Count(gone, "image"), fate, output.Size(freed))
	}
	return printImageFaults(sess, reply.Faults, "could not be reached")
}

// imageNames joins the names of an image. The digest is left out if there is another name, unless all is set.
func imageNames(names []string, all bool) string {
	plain := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.Contains(n, "@") })
	switch {
	case all || len(plain) == 0 && len(names) == 1:
		return strings.Join(names, " ")
	case len(plain) == 0:
		return names[0]
	}
	return strings.Join(plain, " ")
}

// imageTable returns the table of images. The digest of a named image is shown with -o wide only.
func imageTable(sess *session.Session, items []api.ImageView) output.Table {
	wide := sess.Format == output.OutputWide
	type place struct{ node, digest string }
	named := map[place]bool{}
	for i := range items {
		if !strings.Contains(items[i].Name, "@") {
			named[place{node: items[i].Node, digest: items[i].Digest}] = true
		}
	}
	t := output.Table{Titles: []string{"IMAGE", "NODE", "SIZE>", "USED>", "DIGEST", "KEPT BY"}}
	for i := range items {
		v := &items[i]
		if !wide && strings.Contains(v.Name, "@") && named[place{node: v.Node, digest: v.Digest}] {
			continue
		}
		digest := v.Digest
		if !wide {
			digest = shortDigest(digest)
		}
		t.Add(v.Name, v.Node, output.Size(v.Size), sess.Age(v.Used), digest, cmp.Or(v.Kept, "-"))
	}
	return t
}
