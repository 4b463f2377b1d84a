package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/spelling"
	"github.com/berthd/berth/internal/wording"
)

// FilterName is the value of a flag that selects the elements of a list by the name of an object. The kind is the name
// of the flag.
type FilterName struct {
	Kind string
	Text *string
}

// ParseFilterNames reads the values of filter flags like arguments, and sets the cluster of the filter: that of a
// reference such as "prod/web", else the chosen one. Empty values are left alone.
func (s *Scope) ParseFilterNames(cmd *cobra.Command, in *string, names ...FilterName) error {
	for _, flag := range names {
		if *flag.Text == "" {
			continue
		}
		n, err := s.ParseName(cmd, *flag.Text, flag.Kind)
		if err != nil {
			return fmt.Errorf("--%s: %w", flag.Kind, err)
		}
		*flag.Text = n.Name
		if n.Cluster == "" {
			continue
		}
		if other := cmp.Or(*in, s.Cluster); other != "" && other != n.Cluster {
			return &UsageError{
				cmd.CommandPath(),
				fmt.Sprintf("--%s names cluster %s, and another flag cluster %s: leave one of them out", flag.Kind,
					n.Cluster, other),
			}
		}
		*in = n.Cluster
	}
	*in = cmp.Or(*in, s.ChosenCluster())
	return nil
}

// ParseTaskFilter reads the names of a filter of tasks, see ParseFilterNames.
func (s *Scope) ParseTaskFilter(cmd *cobra.Command, f *client.TaskFilter) error {
	return s.ParseFilterNames(cmd, &f.Cluster, FilterName{wording.KindService, &f.Service},
		FilterName{wording.KindJob, &f.Job}, FilterName{wording.KindNode, &f.Node})
}

// Filter holds the objects that a list is limited to. Empty names do not limit it.
type Filter struct{ Cluster, Service, Job, Cron, Node string }

// CheckExists returns an error if an object of the filter does not exist. Commands call it for an empty list, because a
// name may be misspelt.
func (f Filter) CheckExists(ctx context.Context, c *client.Client) error {
	if f.Cluster != "" && f.Service+f.Job+f.Cron == "" {
		if _, err := FindCluster(ctx, c, f.Cluster); err != nil {
			return err
		}
	}
	for _, n := range []Name{
		{wording.KindService, f.Cluster, f.Service},
		{wording.KindJob, f.Cluster, f.Job},
		{wording.KindCron, f.Cluster, f.Cron},
	} {
		if n.Name == "" {
			continue
		}
		// The name of objects in several clusters is no fault in a filter.
		if _, err := n.Resolve(ctx, c); errors.Is(err, ErrUnknown) {
			return err
		}
	}
	if f.Node == "" {
		return nil
	}
	nodes, err := ListNodes(ctx, c, "")
	if err != nil {
		return err
	}
	known := make([]string, len(nodes))
	for i := range nodes {
		known[i] = nodes[i].Name
	}
	if !slices.Contains(known, f.Node) {
		return UnknownError(wording.KindNode, f.Node, known)
	}
	return nil
}

// UnknownWord returns the message for a flag whose value is none of the known words. It names the nearest word, or all
// of them if none is near.
func UnknownWord(flag, value string, known []string) string {
	return flag + " " + value + ": " + wantWord(value, known)
}

// wantWord names the known word that is nearest to a value, or all of them if none is near.
func wantWord(value string, known []string) string {
	if near := spelling.Nearest(value, slices.Values(known)); near != "" {
		return "did you mean " + near + "?"
	}
	last := len(known) - 1
	if last == 0 {
		return "want " + known[0]
	}
	return "want " + strings.Join(known[:last], ", ") + " or " + known[last]
}
