package machine

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// imagesReportInterval is the shortest time between two reports of changed images. Each report writes a record in the
// store for each node, and a new image reaches all nodes at about the same time. Placement by image does not need
// faster reports.
const imagesReportInterval = 5 * time.Minute

// Images finds the images on the machine. It belongs to the goroutine that probes.
type Images struct {
	Node      *node.Node
	Executors *Executors
	Used      func() map[string]bool // the images of known definitions, by normal name
	// reportedAt is when a change of the images was last reported (Boot).
	reportedAt time.Duration
}

// probe returns the images on the machine, by normal name in order: those of its tasks and the newest others.
func (i *Images) probe(ctx context.Context) []string {
	used := i.Used()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var first, rest []string
	for _, e := range i.Executors.offers() {
		namer, ok := e.Executor.(executor.ImageNamer)
		if !ok {
			continue
		}
		names, err := namer.ImageNames(ctx)
		if err != nil {
			i.Node.Logger.Warn("an executor does not list its images", "executor", e.Name, "error", err)
		}
		for _, name := range names {
			if !cluster.ValidImage(name) || strings.HasPrefix(name, "sha256:") {
				continue // not a reference, such as the bare digest of an image
			}
			if name = cluster.NormalImage(name); len(name) > cluster.MaxImage {
				continue
			}
			if used[name] {
				first = append(first, name)
			} else {
				rest = append(rest, name)
			}
		}
	}
	all := append(first, rest...)
	all = all[:min(len(all), cluster.MaxNodeImages)]
	slices.Sort(all)
	return slices.Compact(all)
}

// toReport returns the current images, or for a while the known, reported ones.
func (i *Images) toReport(there []string, known *cluster.Facts) []string {
	begun := known.BootID != "" || known.CPU != 0
	if !begun || slices.Equal(there, known.Images) {
		return there
	}
	if now := i.Node.Boot(); i.reportedAt == 0 || now-i.reportedAt >= imagesReportInterval {
		i.reportedAt = now
		return there
	}
	return known.Images
}
