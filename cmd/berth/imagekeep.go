package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/agent"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor/containerd"
)

// imageFlags say how an agent keeps images.
type imageFlags struct {
	high, low float64
	pulls     int
}

func (f *imageFlags) flags(cmd *cobra.Command) {
	cmd.Flags().Float64Var(&f.high, "image-high", agent.DefaultImageHigh,
		"`PERCENT` of the disk of images and artifacts that is used from which on those are removed that "+
			"nothing uses; 100 for never")
	cmd.Flags().Float64Var(&f.low, "image-low", agent.DefaultImageLow,
		"`PERCENT` of that disk down to which they are removed then")
	cmd.Flags().IntVar(&f.pulls, "pulls", containerd.DefaultPulls,
		"how many images are pulled at a time; one slot is kept from the registry that is pulled from most, "+
			"so that a slow one does not hold up all")
}

// check notes what is wrong with the flags.
func (f *imageFlags) check(list *faults) {
	if !(f.high > 0 && f.high <= 100) { // also what is no number
		list.add("--image-high %v: want a percentage above 0, 100 at the most", f.high)
	}
	if !(f.low > 0 && f.low <= f.high) {
		list.add("--image-low %v: want a percentage above 0, that of --image-high at the most", f.low)
	}
	if f.pulls < 1 || f.pulls > 100 {
		list.add("--pulls %d: want 1 to 100", f.pulls)
	}
}

func (a *app) newImagePullCommand() *cobra.Command {
	var p api.ImagePull
	cmd := &cobra.Command{
		Use:   "pull IMAGE...",
		Short: "Have nodes pull images before tasks need them",
		Long: "Have nodes pull images, with their own logins, before tasks need them; it waits until they " +
			"are there, and shows how far each node is. An image that a node has\n" +
			"already is looked up in its registry again, and pulled if the name stands for another one now.\n\n" +
			"With --keep the images are pinned: a node that needs room on its disk does not remove them, " +
			"only `berth image prune --all` does.",
		Args: arguments(1, -1, "an image, such as registry.example/app:1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			p.Images = args
			board := a.newPullBoard()
			reply, err := c.FollowPull(cmd.Context(), p, board.take)
			board.end()
			if cmd.Context().Err() != nil {
				board.tellLeft()
			}
			if err != nil {
				return err
			}
			faults := reply.Faults
			if reply.Faults = nil; len(reply.Items) > 0 || len(faults) == 0 {
				if err := a.printImages(reply); err != nil {
					return err
				}
			}
			return a.tellImageFaults(faults, "could not pull all images")
		},
	}
	cmd.Flags().StringSliceVar(&p.Nodes, "node", nil, "only this `node`; may be given several times; default all")
	cmd.Flags().BoolVar(&p.Keep, "keep", false, "pin the images: they are not removed to make room")
	mustComplete(cmd, "node", a.completeNames(wordNode))
	return cmd
}

func (a *app) newImagePruneCommand() *cobra.Command {
	var p api.ImagePrune
	var unused time.Duration
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove images that nothing uses from nodes",
		Long: "Remove images that no task of the node uses, those first that were not used for the longest, " +
			"and tell of each what it frees or what keeps\n" +
			"it. Images that were loaded by hand or pinned stay unless --all is given; one that a task uses " +
			"or is about to use always stays.\n\n" +
			"Agents do so by themselves where the disk of the images becomes full: see --image-high of " +
			"berth agent and berth dev.",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			p.Unused = cluster.Duration(unused)
			reply, err := c.PruneImages(cmd.Context(), p)
			if err != nil {
				return err
			}
			return a.printPruned(reply, p.DryRun)
		},
	}
	cmd.Flags().StringSliceVar(&p.Nodes, "node", nil, "only this `node`; may be given several times; default all")
	cmd.Flags().BoolVarP(&p.All, "all", "a", false, "remove also what was loaded by hand or pinned")
	cmd.Flags().BoolVar(&p.DryRun, "dry-run", false, "remove nothing; tell what would go")
	cmd.Flags().DurationVar(&unused, "unused-for", 0, "only what was not used for this `duration`")
	mustComplete(cmd, "node", a.completeNames(wordNode))
	return cmd
}

// printPruned prints what came of each image.
func (a *app) printPruned(reply api.ImagePruneReply, dry bool) error {
	if a.data() {
		if err := a.printData(emptyIsList(reply.Items)); err != nil {
			return err
		}
		return a.tellImageFaults(reply.Faults, "could not be asked")
	}
	fate := "removed"
	if dry {
		fate = "would be removed"
	}
	t := table{titles: []string{"IMAGE", "NODE", "FREES>", "USED>", "FATE"}}
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
		t.add(imageNames(v.Names, a.output == outputWide), v.Node, size(v.Size), a.age(v.Used), end)
	}
	if len(reply.Items) > 0 {
		if err := a.printTable(t); err != nil {
			return err
		}
	}
	if len(reply.Items) > 0 || len(reply.Faults) == 0 {
		a.tell("%s %s, %s.", count(gone, "image"), fate, size(freed))
	}
	return a.tellImageFaults(reply.Faults, "could not be asked")
}

// imageNames returns the names of an image in one line: that by its digest only where there is no other, or all are
// wanted.
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

// imageTable lists images. Of one that has a name, its other one by the digest is left out unless all is wanted.
func (a *app) imageTable(items []api.ImageView) table {
	wide := a.output == outputWide
	type place struct{ node, digest string }
	named := map[place]bool{}
	for i := range items {
		if !strings.Contains(items[i].Name, "@") {
			named[place{items[i].Node, items[i].Digest}] = true
		}
	}
	t := table{titles: []string{"IMAGE", "NODE", "SIZE>", "USED>", "DIGEST", "KEPT BY"}}
	for i := range items {
		v := &items[i]
		if !wide && strings.Contains(v.Name, "@") && named[place{v.Node, v.Digest}] {
			continue
		}
		digest := v.Digest
		if !wide {
			digest = shortDigest(digest)
		}
		t.add(v.Name, v.Node, size(v.Size), a.age(v.Used), digest, cmp.Or(v.Kept, "-"))
	}
	return t
}
