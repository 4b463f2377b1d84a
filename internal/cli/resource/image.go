package resource

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// NewImageCommand returns the command `berth image`.
func NewImageCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "image", Short: "Manage the images on nodes",
		Args: cobra.ArbitraryArgs, RunE: session.RunGroup,
	}
	cmd.AddCommand(newImageLoadCommand(sess), newImageListCommand(sess), newImagePullCommand(sess),
		newImagePruneCommand(sess))
	return cmd
}

// addNodeFlag adds the flag that limits a command to one node.
func addNodeFlag(sess *session.Session, cmd *cobra.Command, node *string) {
	cmd.Flags().StringVar(node, "node", "", "only this `node`; default all")
	session.RegisterCompletion(cmd, "node", sess.CompleteNames(wording.KindNode))
}

// addNodesFlag adds the flag that limits a command to some nodes.
func addNodesFlag(sess *session.Session, cmd *cobra.Command, nodes *[]string) {
	cmd.Flags().StringSliceVar(nodes, "node", nil, "only this `node`; may be given several times; default all")
	session.RegisterCompletion(cmd, "node", sess.CompleteNames(wording.KindNode))
}

// imageLoadCommand is `berth image load`.
type imageLoadCommand struct {
	*session.Session
	node string
}

func newImageLoadCommand(sess *session.Session) *cobra.Command {
	i := &imageLoadCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "load FILE",
		Short: "Send an image archive (docker save or OCI, - for standard input) to nodes",
		Args:  session.Arguments(1, 1, "one archive, - for standard input"),
		RunE:  i.run,
	}
	addNodeFlag(sess, cmd, &i.node)
	return cmd
}

func (i *imageLoadCommand) run(cmd *cobra.Command, args []string) error {
	in := i.Stdin
	if args[0] != "-" {
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.IsDir() {
			return fmt.Errorf("%s is a folder: want one archive, as docker save or an OCI tool writes it", args[0])
		}
		in = f
	}
	c, err := i.Connect()
	if err != nil {
		return err
	}
	reply, err := c.LoadImages(cmd.Context(), i.node, io.NopCloser(in))
	if err != nil {
		return err
	}
	return printImages(i.Session, reply)
}

// imageListCommand is `berth image ls`.
type imageListCommand struct {
	*session.Session
	node string
}

func newImageListCommand(sess *session.Session) *cobra.Command {
	i := &imageListCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List images", Args: session.Arguments(0, 0, ""),
		RunE: sess.WithClient(i.run),
	}
	addNodeFlag(sess, cmd, &i.node)
	return cmd
}

func (i *imageListCommand) run(ctx context.Context, c *client.Client, _ []string) error {
	reply, err := c.Images(ctx, i.node)
	if err != nil {
		return err
	}
	return printImages(i.Session, reply)
}

// printImages prints images. The error lists the nodes that did not answer.
func printImages(sess *session.Session, reply api.ImagesReply) error {
	slices.SortStableFunc(reply.Items, func(x, y api.ImageView) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Node, y.Node))
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
		t := imageTable(sess, reply.Items)
		if err := sess.PrintTable(t); err != nil {
			return err
		}
	case len(reply.Faults) == 0:
		sess.Messagef("No images.")
	}
	return printImageFaults(sess, reply.Faults, "could not be reached")
}

// printImageFaults prints what nodes report against a request, and returns an error if there is something.
func printImageFaults(sess *session.Session, faults []cluster.Fault, what string) error {
	if len(faults) == 0 {
		return nil
	}
	nodes := map[string]bool{}
	for _, f := range faults {
		sess.Messagef("%s", f)
		nodes[f.Path] = true
	}
	return &session.ExitError{Code: session.ExitNo, Err: fmt.Errorf("%s %s", wording.Count(len(nodes), "node"), what)}
}

// shortDigest shortens a digest and keeps it recognizable.
func shortDigest(digest string) string {
	const length = len("sha256:") + 12
	if len(digest) > length {
		return digest[:length]
	}
	return digest
}
