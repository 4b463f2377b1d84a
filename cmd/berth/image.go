package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

func (a *app) newImageCommand() *cobra.Command {
	var node string
	cmd := &cobra.Command{
		Use: "image", Short: "Load, list, pull and remove the nodes' images",
		Args: cobra.ArbitraryArgs, RunE: a.group,
	}
	load := &cobra.Command{
		Use:   "load FILE",
		Short: "Send an archive of images (tar of docker save or OCI, - for standard input) to nodes",
		Args:  arguments(1, 1, "one archive, - for standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := a.stdin
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				if info, err := f.Stat(); err == nil && info.IsDir() {
					return fmt.Errorf("%s is a folder: want one archive, as docker save or an OCI tool writes it",
						args[0])
				}
				in = f
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			reply, err := c.LoadImages(cmd.Context(), node, io.NopCloser(in))
			if err != nil {
				return err
			}
			return a.printImages(reply)
		},
	}
	list := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List images", Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			reply, err := c.Images(cmd.Context(), node)
			if err != nil {
				return err
			}
			return a.printImages(reply)
		},
	}
	for _, c := range []*cobra.Command{load, list} {
		c.Flags().StringVar(&node, "node", "", "only this `node`; default all")
		mustComplete(c, "node", a.completeNames(wordNode))
		cmd.AddCommand(c)
	}
	cmd.AddCommand(a.newImagePullCommand(), a.newImagePruneCommand())
	return cmd
}

// printImages prints images and, as an error, the nodes that could not do it.
func (a *app) printImages(reply api.ImagesReply) error {
	slices.SortStableFunc(reply.Items, func(x, y api.ImageView) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Node, y.Node))
	})
	switch {
	case a.data():
		if err := a.printData(emptyIsList(reply.Items)); err != nil {
			return err
		}
	case len(reply.Items) > 0:
		t := a.imageTable(reply.Items)
		if err := a.printTable(t); err != nil {
			return err
		}
	case len(reply.Faults) == 0:
		a.tell("No images.")
	}
	return a.tellImageFaults(reply.Faults, "could not be asked")
}

// tellImageFaults tells what nodes say against a request, and returns it as an error.
func (a *app) tellImageFaults(faults []cluster.Fault, what string) error {
	if len(faults) == 0 {
		return nil
	}
	nodes := map[string]bool{}
	for _, f := range faults {
		a.tell("%s", f)
		nodes[f.Path] = true
	}
	return &exitError{exitNo, fmt.Errorf("%s %s", count(len(nodes), "node"), what)}
}

// shortDigest keeps what tells one image from another.
func shortDigest(digest string) string {
	const length = len("sha256:") + 12
	if len(digest) > length {
		return digest[:length]
	}
	return digest
}
