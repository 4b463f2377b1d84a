package hostdriver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/shorten"
)

const (
	// listWait is how long the driver waits for a change of the services. Deadlines of replacements are checked
	// between two such waits.
	listWait = 5 * time.Second
	// minRetry and maxRetry bound the time between two requests to a server that does not answer.
	minRetry, maxRetry = 100 * time.Millisecond, 5 * time.Second
	// maxFailureText limits the text of a failure, in bytes.
	maxFailureText = 200
)

// Run follows the services that were made here, and completes replacements, until ctx ends.
func (d *Driver) Run(ctx context.Context) error {
	var index uint64
	backoff := &pause.Backoff{Shortest: minRetry, Longest: maxRetry}
	for {
		page, err := d.config.Client.Services(ctx, cluster.DefaultCluster,
			client.ListOptions{Index: index, Wait: listWait})
		if err == nil {
			index = page.Index
			err = d.take(ctx, &page)
		}
		if err == nil {
			err = d.advance(ctx)
		}
		if err == nil {
			backoff.Reset()
			continue
		}
		index = 0
		d.forgetIndex()
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it failed because the context ended
		}
		d.config.Log.Debug("the node's own server did not answer", "error", err)
		if backoff.Wait(ctx) != nil {
			return nil //nolint:nilerr // the context ended
		}
	}
}

// refresh reads the services again, so that the caller of a change sees it.
func (d *Driver) refresh(ctx context.Context) error {
	page, err := d.config.Client.Services(ctx, cluster.DefaultCluster, client.ListOptions{})
	if err != nil {
		return problem(err)
	}
	return d.take(ctx, &page)
}

// forgetIndex makes the driver accept any list next: a server that was restored begins with a lower index.
func (d *Driver) forgetIndex() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known.index = 0
}

// services are the services that were made here, as of an index of the server's list. They do not change.
type services struct {
	index       uint64
	byName      map[string]api.ServiceView
	definitions map[api.Ref]*cluster.TaskDefinition
	last        map[string]api.TaskView // the newest attempts of services that run nothing
}

// take remembers the services that were made here, with their definitions and their newest attempts. A list that is
// older than the known one is dropped.
func (d *Driver) take(ctx context.Context, page *api.Page[api.ServiceView]) error {
	known := d.current()
	now := services{
		index: page.Index, byName: map[string]api.ServiceView{}, definitions: map[api.Ref]*cluster.TaskDefinition{},
		last: map[string]api.TaskView{},
	}
	for i := range page.Items {
		svc := &page.Items[i]
		if svc.Labels[labelNode] != d.config.Node {
			continue
		}
		now.byName[svc.Name] = *svc
		def := known.definitions[svc.Definition]
		if def == nil {
			v, err := d.config.Client.Definition(ctx, svc.Definition)
			switch {
			case client.StatusOf(err) == http.StatusNotFound: // the service was deleted since
			case err != nil:
				return err
			default:
				def = &v.TaskDefinition
			}
		}
		now.definitions[svc.Definition] = def
		if err := d.takeLast(ctx, svc, &known, &now); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.index < d.known.index {
		return nil
	}
	same := reflect.DeepEqual(now.byName, d.known.byName) && reflect.DeepEqual(now.definitions, d.known.definitions) &&
		reflect.DeepEqual(now.last, d.known.last)
	if d.known = now; !same {
		close(d.changed)
		d.changed = make(chan struct{})
	}
	return nil
}

// takeLast remembers the newest attempt of a service that runs nothing.
func (d *Driver) takeLast(ctx context.Context, svc *api.ServiceView, known, now *services) error {
	if !svc.Stopped || svc.Labels[labelStarted] == "" {
		return nil
	}
	before, ok := known.byName[svc.Name]
	if ok && svc.Status.State == cluster.ServiceStopped && reflect.DeepEqual(before, *svc) {
		if last, ok := known.last[svc.Name]; ok {
			now.last[svc.Name] = last
		}
		return nil
	}
	tasks, err := d.config.Client.Tasks(ctx, client.TaskFilter{
		Cluster: cluster.DefaultCluster, Service: svc.Name, All: true,
	}, client.ListOptions{})
	if err != nil {
		return err
	}
	for _, t := range tasks.Items {
		if old, ok := now.last[svc.Name]; t.UUID != "" && (!ok || t.Placed.After(old.Placed)) {
			now.last[svc.Name] = t
		}
	}
	return nil
}

// advance takes the next step of each replacement.
func (d *Driver) advance(ctx context.Context) error {
	var replacing []api.ServiceView
	for _, svc := range d.current().byName { // order-free: each by itself
		if svc.Labels[labelReplaces] != "" && !svc.Deleted {
			replacing = append(replacing, svc)
		}
	}
	var errs []error
	for i := range replacing {
		errs = append(errs, d.advanceOne(ctx, &replacing[i]))
	}
	return errors.Join(errs...)
}

// advanceOne takes the next step of one replacement, if its time has come.
func (d *Driver) advanceOne(ctx context.Context, svc *api.ServiceView) error {
	name, old := svc.Name, svc.Labels[labelReplaces]
	v, err := d.config.Client.Service(ctx, cluster.DefaultCluster, old)
	gone := client.StatusOf(err) == http.StatusNotFound
	switch {
	case gone:
		d.config.Log.Info("a task was replaced", "new", name, "old", old)
		return d.edit(ctx, name, func(s *cluster.Service) error {
			delete(s.Labels, labelReplaces)
			delete(s.Labels, labelUntil)
			return nil
		})
	case err != nil:
		return err
	case v.Deleted: // the new task was healthy: there is no way back
		return nil
	}
	if svc.Status.State == cluster.ServiceHealthy && svc.Status.Healthy > 0 {
		if err := d.config.Client.DeleteService(ctx, cluster.DefaultCluster, old, client.Condition{}); err != nil {
			return err
		}
		return d.refresh(ctx)
	}
	why := d.failure(svc)
	if why == "" {
		return nil
	}
	d.config.Log.Warn("a task was not replaced", "new", name, "old", old, "reason", why)
	return d.edit(ctx, name, func(s *cluster.Service) error {
		if s.Labels[labelReplaces] != old { // it was stopped meanwhile
			return nil
		}
		s.Stopped = true
		s.Labels[labelFailed] = clip("it did not replace "+old+": "+why, maxFailureText)
		delete(s.Labels, labelReplaces)
		delete(s.Labels, labelUntil)
		return nil
	})
}

// failure returns why the new task of a replacement has failed, or "".
func (d *Driver) failure(svc *api.ServiceView) string {
	status := &svc.Status
	switch {
	case len(status.Crashing) > 0 || status.State == cluster.ServiceCrashLooping || len(status.GivenUp) > 0:
		if status.Message != "" {
			return status.Message
		}
		return "it ends again and again"
	}
	until, err := time.Parse(time.RFC3339, svc.Labels[labelUntil])
	if err == nil && d.config.Now().Before(until) {
		return ""
	}
	text := fmt.Sprintf("it was not healthy within %s", cluster.Duration(d.config.Deadline))
	if status.Message != "" {
		text += ": " + status.Message
	}
	return text
}

// clip shortens a text to a number of bytes.
func clip(text string, most int) string {
	return shorten.Start(strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text), most)
}
