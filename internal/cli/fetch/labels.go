package fetch

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// requirement is one condition of a selector.
type requirement struct {
	key, value string
	// exists asks for the key with any value.
	exists bool
	// negated inverts the condition. An object without the key then meets it.
	negated bool
}

// Selector selects objects by their labels: an object must meet all requirements. The zero Selector selects all.
type Selector []requirement

// labelKey matches the key of a label.
var labelKey = regexp.MustCompile(`^[A-Za-z0-9._/-]+$`)

// ParseSelector parses "key=value,key!=value,key,!key".
func ParseSelector(text string) (Selector, error) {
	var all Selector
	for part := range strings.SplitSeq(text, ",") {
		r := requirement{key: strings.TrimSpace(part)}
		if key, value, ok := strings.Cut(r.key, "="); ok {
			r.value = strings.TrimSpace(strings.TrimPrefix(value, "="))
			r.key, r.negated = strings.CutSuffix(key, "!")
		} else {
			r.exists = true
			r.key, r.negated = strings.CutPrefix(r.key, "!")
		}
		if r.key = strings.TrimSpace(r.key); !labelKey.MatchString(r.key) {
			return nil, fmt.Errorf("%q is not a label selector: want key=value, key!=value, key or !key, "+
				"separated by commas", part)
		}
		all = append(all, r)
	}
	return all, nil
}

// Matches reports whether labels meet all requirements.
func (s Selector) Matches(labels cluster.Labels) bool {
	for _, r := range s {
		value, there := labels[r.key]
		if (there && (r.exists || value == r.value)) == r.negated {
			return false
		}
	}
	return true
}

// Labels are the flags of a list for the labels of its objects: a selector, and labels to show as columns.
type Labels struct {
	text     string
	columns  []string
	selector Selector
}

// AddFlags adds --selector and --label-columns. Whose are the objects whose labels count.
func (l *Labels) AddFlags(cmd *cobra.Command, whose string) {
	cmd.Flags().StringVarP(&l.text, "selector", "l", "",
		"only "+whose+" with these `labels`: key=value, key!=value, key or !key, separated by commas")
	cmd.Flags().StringSliceVarP(&l.columns, "label-columns", "L", nil, "show the labels with these `keys` as columns")
	session.RegisterCompletion(cmd, "selector", cobra.NoFileCompletions)
	session.RegisterCompletion(cmd, "label-columns", cobra.NoFileCompletions)
}

// Parse reads the selector.
func (l *Labels) Parse(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("selector") {
		return nil
	}
	var err error
	if l.selector, err = ParseSelector(l.text); err != nil {
		return &session.UsageError{Command: cmd.CommandPath(), Message: "-l " + l.text + ": " + err.Error()}
	}
	return nil
}

// Selects reports whether there is a selector.
func (l *Labels) Selects() bool { return len(l.selector) > 0 }

// Given reports whether there is a selector, or labels are shown.
func (l *Labels) Given() bool { return l.Selects() || len(l.columns) > 0 }

// Matches reports whether the selector selects an object with these labels.
func (l *Labels) Matches(labels cluster.Labels) bool { return l.selector.Matches(labels) }

// EmptyText returns the message for an empty list, which is none without a selector.
func (l *Labels) EmptyText(none string) string {
	if l.Selects() {
		return "Nothing has the labels of -l " + l.text + "."
	}
	return none
}

// AddColumns adds the chosen labels to a table. Labels returns those of the object in a row.
func (l *Labels) AddColumns(t *output.Table, labels func(row int) cluster.Labels) {
	if len(l.columns) == 0 {
		return
	}
	titles := make([]string, len(l.columns))
	for i, key := range l.columns {
		titles[i] = strings.ToUpper(key[strings.LastIndex(key, "/")+1:])
	}
	t.Insert(titles, func(row int) []string {
		own, cells := labels(row), make([]string, len(l.columns))
		for i, key := range l.columns {
			value, ok := own[key]
			if !ok {
				value = output.NoValue
			}
			cells[i] = value
		}
		return cells
	})
}

// KeepLabelled returns the elements of a list that the selector selects.
func KeepLabelled[T any](l *Labels, all []T, labels func(T) cluster.Labels) []T {
	if !l.Selects() {
		return all
	}
	kept := []T{}
	for _, v := range all {
		if l.Matches(labels(v)) {
			kept = append(kept, v)
		}
	}
	return kept
}

// OwnerLabels are the labels of services and jobs.
type OwnerLabels map[cluster.OwnerRef]cluster.Labels

// ReadOwnerLabels reads the labels of all services and jobs of a cluster; "" is all clusters.
func ReadOwnerLabels(ctx context.Context, c *client.Client, in string) (OwnerLabels, error) {
	all := OwnerLabels{}
	services, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.ServiceView], error) {
			return c.Services(ctx, in, o)
		})
	if err != nil {
		return nil, err
	}
	for _, s := range services {
		all[s.Owner()] = s.Labels
	}
	jobs, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.JobView], error) {
			return c.Jobs(ctx, in, o)
		})
	for _, j := range jobs {
		all[j.Owner()] = j.Labels
	}
	return all, err
}
