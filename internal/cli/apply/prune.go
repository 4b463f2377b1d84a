package apply

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/manifest"
	"github.com/berthd/berth/internal/selector"
	"github.com/berthd/berth/internal/wording"
)

const pruneHelp = "With --prune -l LABELS, it also deletes the services, jobs, crons and endpoints that have the\n" +
	"labels, are in a cluster of the manifests, and are in none of the manifests. Jobs of crons stay."

// prune are the flags that also delete what the manifests no longer have.
type prune struct {
	on       bool
	text     string
	selector selector.Labels
}

func (p *prune) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.on, "prune", false,
		"also delete what has the labels of -l, is in a cluster of the manifests, and is not in the manifests")
	cmd.Flags().StringVarP(&p.text, "selector", "l", "",
		"the `labels` of what --prune may delete: key=value, key!=value, key or !key, separated by commas")
	session.RegisterCompletion(cmd, "selector", cobra.NoFileCompletions)
}

// parse checks the flags.
func (p *prune) parse(cmd *cobra.Command) (err error) {
	fault := func(format string, args ...any) error {
		return &session.UsageError{Command: cmd.CommandPath(), Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case p.on && strings.TrimSpace(p.text) == "":
		return fault("--prune needs -l with the labels of what it may delete, such as -l app=shop")
	case !p.on && p.text != "":
		return fault("-l has no effect without --prune")
	case !p.on:
		return nil
	}
	if p.selector, err = selector.Parse(p.text); err != nil {
		return fault("-l %s: %s", p.text, err)
	}
	return nil
}

// find returns what the prune deletes, in the order of its deletion. Without --prune that is nothing.
func (p *prune) find(ctx context.Context, c *client.Client, objects []manifest.Object) ([]session.Name, error) {
	if !p.on {
		return nil, nil
	}
	var clusters []string
	for i := range objects {
		o := &objects[i]
		in := o.Cluster()
		if o.Kind == cluster.KindCluster {
			in = o.Name()
		}
		if in != "" && !slices.Contains(clusters, in) {
			clusters = append(clusters, in)
		}
	}
	selected := selection{clusters: clusters, selector: p.text, selects: p.selector.Matches}
	unwritten, _, err := selected.find(ctx, c, objects)
	return unwritten, err
}

// selection are the services, jobs, crons and endpoints of clusters ("" for all) that have some labels.
type selection struct {
	clusters []string
	// selector is for the servers; it selects at least what selects does.
	selector string
	selects  func(cluster.Labels) bool
}

// find returns the objects of the selection that are in no manifest, in the order of their deletion, and the number of
// the others. Jobs of crons and deleted objects do not count.
func (s selection) find(ctx context.Context, c *client.Client, objects []manifest.Object) (unwritten []session.Name,
	written int, err error,
) {
	inManifests := map[session.Name]bool{}
	names, _ := removable(objects)
	for _, n := range names {
		inManifests[n] = true
	}
	var crons, endpoints, services, jobs []session.Name
	add := func(to *[]session.Name, n session.Name, labels cluster.Labels, life cluster.Lifespan) {
		switch {
		case life.Deleted || !s.selects(labels):
		case inManifests[n]:
			written++
		default:
			*to = append(*to, n)
		}
	}
	for _, in := range s.clusters {
		owners, err := fetch.ListOwners(ctx, c, in, client.ListOptions{Selector: s.selector, Brief: true})
		if fetch.IgnoreNotFound(err) != nil {
			return nil, 0, err
		}
		for _, v := range owners.Crons {
			add(&crons, session.CronName(v), v.Labels, v.Lifespan)
		}
		named, err := session.ListEndpoints(ctx, c, in, s.selector)
		if fetch.IgnoreNotFound(err) != nil {
			return nil, 0, err
		}
		for _, v := range named {
			add(&endpoints, session.EndpointName(v), v.Labels, v.Lifespan)
		}
		for _, v := range owners.Services {
			add(&services, session.ServiceName(v), v.Labels, v.Lifespan)
		}
		for _, v := range owners.Jobs {
			if v.Cron == "" { // jobs of crons stay
				add(&jobs, session.Name{Kind: wording.KindJob, Cluster: v.Cluster, Name: v.Name}, v.Labels, v.Lifespan)
			}
		}
	}
	return slices.Concat(crons, endpoints, services, jobs), written, nil
}

// confirmDeletion asks whether objects may be deleted. Without a terminal the flag --yes is the only way to confirm.
func confirmDeletion(sess *session.Session, names []session.Name) error {
	texts := make([]string, len(names))
	for i, n := range names {
		texts[i] = n.String()
	}
	in, ok := sess.Stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return &hinted.Error{
			Err:  fmt.Errorf("--prune would delete %s", strings.Join(texts, ", ")),
			Hint: "Confirm with --yes. 'berth plan --prune' shows the deletions together with the other changes.",
		}
	}
	fmt.Fprintf(sess.Stderr, "Delete %s? [y/N] ", sess.Shorten(strings.Join(texts, ", ")))
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.New("nothing was changed: the deletion was not confirmed")
	}
	return nil
}
