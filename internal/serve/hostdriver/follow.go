package hostdriver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
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
			err = d.take(ctx, page.Items)
		}
		if err == nil {
			err = d.advance(ctx)
		}
		if err == nil {
			backoff.Reset()
			continue
		}
		index = 0
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
	return d.take(ctx, page.Items)
}

// take remembers the services that were made here, with their definitions and their newest attempts.
func (d *Driver) take(ctx context.Context, all []api.ServiceView) error {
	services, last := map[string]api.ServiceView{}, map[string]api.TaskView{}
	definitions := map[api.Ref]*cluster.TaskDefinition{}
	d.mu.Lock()
	known := d.definitions
	d.mu.Unlock()
	for _, svc := range all {
		if svc.Labels[labelNode] != d.config.Node {
			continue
		}
		services[svc.Name] = svc
		def := known[svc.Definition]
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
		definitions[svc.Definition] = def
		if !svc.Stopped || svc.Labels[labelStarted] == "" {
			continue
		}
		tasks, err := d.config.Client.Tasks(ctx, client.TaskFilter{
			Cluster: cluster.DefaultCluster, Service: svc.Name, All: true,
		}, client.ListOptions{})
		if err != nil {
			return err
		}
		for _, t := range tasks.Items {
			if old, ok := last[svc.Name]; t.UUID != "" && (!ok || t.Placed.After(old.Placed)) {
				last[svc.Name] = t
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.services, d.definitions, d.last = services, definitions, last
	close(d.changed)
	d.changed = make(chan struct{})
	return nil
}

// advance takes the next step of each replacement.
func (d *Driver) advance(ctx context.Context) error {
	d.mu.Lock()
	var replacing []api.ServiceView
	for _, svc := range d.services { // order-free: each by itself
		if svc.Labels[labelReplaces] != "" && !svc.Deleted {
			replacing = append(replacing, svc)
		}
	}
	d.mu.Unlock()
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
	text = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text)
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
