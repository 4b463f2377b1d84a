package session

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// FindObject reads an argument that names an object of one of the kinds: a reference, or a bare name. A bare name is
// looked up among the services, jobs, crons and endpoints of the current cluster, then among the nodes and tasks. A
// name of several owners is refused. FindObject does not check that the object of a reference exists.
func (s *Scope) FindObject(cmd *cobra.Command, c *client.Client, text string, kinds ...string) (Name, error) {
	n, err := s.parseReference(cmd, text, kinds...)
	if err != nil {
		return n, err
	}
	n = s.complete(n)
	if n.Kind != "" {
		return n, nil
	}
	return s.findBare(cmd, c, n, text, kinds)
}

// findBare finds the object of a name without a kind, which the user wrote as the text.
func (s *Scope) findBare(cmd *cobra.Command, c *client.Client, n Name, text string, kinds []string) (Name, error) {
	has := func(kind string) bool { return slices.Contains(kinds, kind) }
	tasksIn := cmp.Or(n.Cluster, cluster.DefaultCluster)
	if id, ok := taskIDIn(tasksIn, n.Name); ok && has(wording.KindTask) {
		return Name{Kind: wording.KindTask, Name: string(id)}, nil
	} else if ok {
		return n, s.takesNoTask(cmd, string(id), kinds)
	}
	if strings.Contains(n.Name, "@") && has(wording.KindDefinition) {
		return Name{Kind: wording.KindDefinition, Name: n.Name}, nil
	}
	var hits, known []string
	var found Name
	for _, kind := range kinds {
		if !isOwned(kind) {
			continue
		}
		names, err := ownedNames(cmd.Context(), c, kind, n.Cluster)
		if err != nil {
			return n, err
		}
		for _, v := range names {
			if v.Name == n.Name {
				found = v
				hits = append(hits, v.String())
			}
			known = append(known, v.String())
		}
	}
	switch len(hits) {
	case 0:
	case 1:
		return found, nil
	default:
		return n, AmbiguousError(n.Name, hits)
	}
	if has(wording.KindNode) {
		v, err := c.Node(cmd.Context(), n.Name)
		if err == nil {
			return Name{Kind: wording.KindNode, Name: v.Name}, nil
		}
		if client.StatusOf(err) != http.StatusNotFound {
			return n, err
		}
	}
	if has(wording.KindTask) {
		v, err := findTaskIn(cmd.Context(), c, tasksIn, n.Name)
		if err == nil {
			return Name{Kind: wording.KindTask, Name: string(v.ID)}, nil
		}
		if !errors.Is(err, ErrUnknown) || len(kinds) == 1 {
			return n, err
		}
	}
	kindsText := bareKinds(kinds)
	return n, n.orOtherKind(cmd.Context(), c, UnknownError(kindsText, text, known), kindsText+" "+strconv.Quote(text),
		kinds...)
}

// bareKinds joins the kinds whose names need no kind: "service, job or task".
func bareKinds(kinds []string) string {
	bare := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool {
		return !isOwned(kind) && kind != wording.KindTask && kind != wording.KindNode
	})
	if len(bare) < 2 {
		return strings.Join(bare, "")
	}
	last := len(bare) - 1
	return strings.Join(bare[:last], ", ") + " or " + bare[last]
}

// ownedNames returns the names of the services, jobs, crons or endpoints of a cluster, or of all clusters for "". A
// server of an earlier version has no endpoints.
func ownedNames(ctx context.Context, c *client.Client, kind, in string) (names []Name, err error) {
	switch kind {
	case wording.KindService:
		all, err := listIn[api.ServiceView](c.Services).all(ctx, in, "")
		for _, v := range all {
			names = append(names, ServiceName(v))
		}
		return names, err
	case wording.KindJob:
		all, err := listIn[api.JobView](c.Jobs).all(ctx, in, "")
		for _, v := range all {
			names = append(names, Name{wording.KindJob, v.Cluster, v.Name})
		}
		return names, err
	case wording.KindEndpoint:
		all, err := ListEndpoints(ctx, c, in, "")
		if client.StatusOf(err) == http.StatusNotFound {
			return nil, nil
		}
		for _, v := range all {
			names = append(names, EndpointName(v))
		}
		return names, err
	}
	all, err := listIn[api.CronView](c.Crons).all(ctx, in, "")
	for _, v := range all {
		names = append(names, CronName(v))
	}
	return names, err
}

// FindTask returns the newest attempt of a task. The text is a task id, with or without the current cluster, an
// attempt's id, or a prefix of one of these. FindObject returns names of tasks in this form.
func (s *Scope) FindTask(ctx context.Context, c *client.Client, text string) (api.TaskView, error) {
	return findTaskIn(ctx, c, cmp.Or(s.CurrentCluster(), cluster.DefaultCluster), text)
}

// taskID returns the id of a task that a text names in full, with its cluster or in the current one.
func (s *Scope) taskID(text string) (cluster.TaskID, bool) {
	return taskIDIn(cmp.Or(s.CurrentCluster(), cluster.DefaultCluster), text)
}

// taskIDIn returns the id of a task that a text names in full, with its cluster or in the cluster in.
func taskIDIn(in, text string) (cluster.TaskID, bool) {
	for _, id := range []cluster.TaskID{cluster.TaskID(text), cluster.TaskID(in + "." + text)} {
		if _, ok := id.Parts(); ok {
			return id, true
		}
	}
	return "", false
}

// findTaskIn returns the newest attempt of a task like FindTask. The id may omit the cluster in.
func findTaskIn(ctx context.Context, c *client.Client, in, text string) (api.TaskView, error) {
	if id, ok := taskIDIn(in, text); ok {
		t, err := c.Task(ctx, id)
		if client.StatusOf(err) != http.StatusNotFound {
			return t, err
		}
	}
	tasks, err := ListTasks(ctx, c, client.TaskFilter{All: true})
	if err != nil {
		return api.TaskView{}, err
	}
	var hits []api.TaskView
	var known []string
	for _, t := range KeepNewest(tasks) {
		known = append(known, string(t.ID))
		if strings.HasPrefix(string(t.ID), text) || strings.HasPrefix(string(t.ID), in+"."+text) ||
			len(text) >= 4 && strings.HasPrefix(t.UUID, text) {
			hits = append(hits, t)
		}
	}
	if len(hits) > 1 { // prefer a live task to ended ones
		if alive := slices.DeleteFunc(slices.Clone(hits), func(t api.TaskView) bool {
			return t.State.Terminal()
		}); len(alive) == 1 {
			hits = alive
		}
	}
	switch len(hits) {
	case 0:
		return api.TaskView{}, UnknownError(wording.KindTask, text, known)
	case 1:
		return hits[0], nil
	}
	var candidates []string
	for _, t := range hits {
		candidates = append(candidates, string(t.ID))
	}
	return api.TaskView{}, AmbiguousError(text, candidates)
}
