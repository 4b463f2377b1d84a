// Package hostdriver changes the tasks of a node that drives itself, over the API of its own server.
//
// A task is a service of one task, bound to the node, that keeps its room while it is stopped. Labels of the service
// hold what the service has no field for: that the service was made here, its content, the task that it replaces, and
// why a replacement failed. So all that remains to be done is in the record of the service, and a driver that starts
// again continues where the last one ended.
//
// A replacement has three steps, and each is one write. The new service is written together with the name of the old
// one. The old service is deleted once the new one is healthy. The name is removed once the old service is gone. If the
// new service fails before the second step, one write stops it and removes the name.
package hostdriver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/agent/hostapi"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
)

// Labels of the services that are made here.
const (
	labelNode     = "host-api/node"     // the node
	labelContent  = "host-api/content"  // a checksum of the request
	labelStarted  = "host-api/started"  // the task was started once
	labelReplaces = "host-api/replaces" // the task that is deleted once this one is healthy
	labelUntil    = "host-api/until"    // when the replacement fails
	labelFailed   = "host-api/failed"   // why the replacement failed
)

// Config is what New needs.
type Config struct {
	// Node is the name of the node.
	Node string
	// Client sends the requests to the node's own server.
	Client *client.Client
	// Deadline is how long the new task of a replacement may take to become healthy. Default
	// cluster.DefaultHealthyDeadline.
	Deadline time.Duration
	Log      *slog.Logger
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// Driver implements hostapi.Driver. Its methods may be called concurrently.
type Driver struct {
	config Config

	writing chan struct{} // holds a value during a change: one at a time

	mu      sync.Mutex
	known   services
	changed chan struct{}
}

// New returns a driver. It starts nothing.
func New(c Config) *Driver {
	if c.Deadline == 0 {
		c.Deadline = time.Duration(cluster.DefaultHealthyDeadline)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Driver{config: c, writing: make(chan struct{}, 1), changed: make(chan struct{})}
}

// begin waits until no other change is being made. A nil error must be followed by end.
func (d *Driver) begin(ctx context.Context) error {
	select {
	case d.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return respond.Problemf(http.StatusServiceUnavailable, "earlier changes of the node's tasks are not made yet, "+
			"so this one was not begun: repeat the request")
	}
}

func (d *Driver) end() { <-d.writing }

// current returns the services as the driver knows them.
func (d *Driver) current() services {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known
}

// Changed implements hostapi.Driver.
func (d *Driver) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// Tasks implements hostapi.Driver.
func (d *Driver) Tasks() []hostapi.OwnTask {
	known := d.current()
	var all []hostapi.OwnTask
	for _, name := range slices.Sorted(maps.Keys(known.byName)) {
		svc := known.byName[name]
		t := hostapi.OwnTask{HostTask: api.HostTask{
			Name: name, Own: true, Owner: svc.Owner(), Definition: svc.Definition,
			Replaces: svc.Labels[labelReplaces],
		}, HoldsRoom: svc.KeepRoom && !svc.Deleted, Content: known.definitions[svc.Definition]}
		switch {
		case svc.Deleted:
			t.State, t.Message = string(cluster.StateStopping), "it is being deleted"
		case svc.Stopped && svc.Labels[labelFailed] != "":
			t.State, t.Message = string(cluster.StateFailed), svc.Labels[labelFailed]
		case svc.Stopped && svc.Labels[labelStarted] == "":
			t.State = api.HostCreated
		case svc.Stopped:
			t.State = api.HostStopped
		default:
			t.State, t.Message = api.HostWaiting, svc.Status.Message
		}
		if t.Content != nil {
			t.Demand, t.Ports = t.Content.Demand(), fixedPorts(t.Content)
		}
		if v, ok := known.last[name]; ok {
			t.ID, t.Attempt, t.UUID, t.Restarts, t.Containers = v.ID, v.Attempt, v.UUID, v.Restarts, v.Containers
			t.Started, t.Finished = v.Started, v.Finished
			for i := range v.Containers {
				t.OOMs += v.Containers[i].OOMs
			}
		}
		all = append(all, t)
	}
	return all
}

// fixedPorts returns the ports of a definition that have a number, by name.
func fixedPorts(d *cluster.TaskDefinition) map[string]int {
	var fixed map[string]int
	for i := range d.Ports {
		if p := &d.Ports[i]; p.Port != 0 {
			if fixed == nil {
				fixed = map[string]int{}
			}
			fixed[p.Name] = p.Port
		}
	}
	return fixed
}

// Create implements hostapi.Driver.
func (d *Driver) Create(ctx context.Context, c hostapi.Creation) (created bool, err error) {
	if err := d.begin(ctx); err != nil {
		return false, err
	}
	defer d.end()
	content, err := checksum(&c.Definition)
	if err != nil {
		return false, err
	}
	switch known, err := d.config.Client.Service(ctx, cluster.DefaultCluster, c.Name); {
	case err == nil:
		return false, d.exists(&known, content, c.Replace)
	case client.StatusOf(err) != http.StatusNotFound:
		return false, problem(err)
	}
	if n := len(d.current().byName); n >= maxTasks {
		return false, respond.Problemf(http.StatusConflict, "%d tasks were made over the API of the node, and more "+
			"are not allowed: delete the ones that are not needed", n)
	}
	svc := cluster.Service{
		Cluster: cluster.DefaultCluster, Name: c.Name, Count: 1, Stopped: true, KeepRoom: true,
		Labels:   cluster.Labels{labelNode: d.config.Node, labelContent: content},
		Template: &c.Definition,
		Placement: cluster.Placement{Constraints: []cluster.Constraint{{
			Attribute: "node.name", Op: cluster.OpEqual, Value: d.config.Node,
		}}},
	}
	if c.Replace != "" {
		if err := d.checkReplaced(ctx, &c); err != nil {
			return false, err
		}
		svc.Stopped = false
		svc.Labels[labelReplaces], svc.Labels[labelStarted] = c.Replace, "true"
		svc.Labels[labelUntil] = d.config.Now().Add(d.config.Deadline).UTC().Format(time.RFC3339)
	}
	completed := c.Definition.TaskDefinition
	completed.SetDefaults()
	if err := c.Fits(&completed); err != nil {
		return false, err
	}
	_, err = d.config.Client.PutService(ctx, svc, client.Condition{Absent: true})
	if client.StatusOf(err) == http.StatusPreconditionFailed {
		return false, respond.Problemf(http.StatusConflict,
			"the service %s was made at this moment: repeat the request", c.Name)
	}
	if err != nil {
		return false, problem(err)
	}
	return true, d.refresh(ctx)
}

// exists answers the creation of a service that exists. A repeated request is no error, so that programs which manage
// configurations may repeat it.
func (d *Driver) exists(known *api.ServiceView, content, replace string) error {
	switch {
	case known.Labels[labelNode] != d.config.Node:
		return respond.Problemf(http.StatusConflict,
			"there is a service %s already, which was not made over this API: choose another name", known.Name)
	case known.Deleted:
		return respond.Problemf(http.StatusConflict, "the task %s is being deleted: repeat the request in a moment",
			known.Name)
	case known.Labels[labelContent] != content:
		return respond.Problemf(http.StatusConflict, "there is a task %s already, with another content: choose "+
			"another name, and replace the old task with ?replace=%s", known.Name, known.Name)
	case replace != "" && known.Labels[labelReplaces] != replace:
		return respond.Problemf(http.StatusConflict,
			"there is a task %s already, which does not replace %s: choose another name", known.Name, replace)
	}
	return nil
}

// checkReplaced checks that the task exists that another one is to replace.
func (d *Driver) checkReplaced(ctx context.Context, c *hostapi.Creation) error {
	old, err := d.own(ctx, c.Replace)
	if err != nil {
		return err
	}
	if old.Labels[labelReplaces] != "" {
		return respond.Problemf(http.StatusConflict, "the task %s itself is replacing %s: wait until that is done",
			old.Name, old.Labels[labelReplaces])
	}
	for name, svc := range d.current().byName { // order-free: at most one
		if svc.Labels[labelReplaces] == old.Name {
			return respond.Problemf(http.StatusConflict, "the task %s is being replaced by %s already", old.Name, name)
		}
	}
	return nil
}

// Start implements hostapi.Driver.
func (d *Driver) Start(ctx context.Context, name string) error {
	return d.edit(ctx, name, func(svc *cluster.Service) error {
		if !svc.Stopped {
			return respond.Problemf(http.StatusConflict, "the task %s runs already", name)
		}
		svc.Stopped = false
		svc.Labels[labelStarted] = "true"
		delete(svc.Labels, labelFailed)
		return nil
	})
}

// Stop implements hostapi.Driver. It ends a replacement: the old task stays.
func (d *Driver) Stop(ctx context.Context, name string) error {
	return d.edit(ctx, name, func(svc *cluster.Service) error {
		if svc.Stopped {
			return respond.Problemf(http.StatusConflict, "the task %s is stopped already", name)
		}
		svc.Stopped = true
		delete(svc.Labels, labelReplaces)
		delete(svc.Labels, labelUntil)
		return nil
	})
}

// maxTasks limits the tasks that are made on a node. Each one that is shown costs the agent time and memory.
const maxTasks = 1000

// deletionTimeout is how long Delete waits until the service is gone.
const deletionTimeout = 10 * time.Second

// Delete implements hostapi.Driver. It returns once the room is free.
func (d *Driver) Delete(ctx context.Context, name string) error {
	if err := d.delete(ctx, name); err != nil {
		return err
	}
	return d.awaitGone(ctx, name) // while others make their changes
}

// delete deletes the service of a task.
func (d *Driver) delete(ctx context.Context, name string) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	defer d.end()
	svc, err := d.own(ctx, name)
	switch {
	case err != nil:
		return err
	case !svc.Stopped:
		return respond.Problemf(http.StatusConflict, "the task %s runs: stop it first", name)
	case svc.Status.State == cluster.ServiceStopping:
		return respond.Problemf(http.StatusConflict,
			"the task %s is still stopping: repeat the request in a moment", name)
	}
	if err := d.config.Client.DeleteService(ctx, cluster.DefaultCluster, name, client.Condition{}); err != nil {
		return problem(err)
	}
	return nil
}

// awaitGone waits until the tables of the server do not have the deleted service. Meanwhile another one may be made
// under its name.
func (d *Driver) awaitGone(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, deletionTimeout)
	defer cancel()
	var deleted uint64 // the revision of the deletion
	for {
		changed := d.Changed()
		if err := d.refresh(ctx); err != nil {
			return err
		}
		svc, there := d.current().byName[name]
		if !there || !svc.Deleted || deleted != 0 && svc.Revision != deleted {
			return nil
		}
		deleted = svc.Revision
		select {
		case <-ctx.Done():
			return respond.Problemf(http.StatusServiceUnavailable,
				"the task %s is being deleted, which takes longer than %s", name, deletionTimeout)
		case <-changed:
		}
	}
}

// edit changes a service. A change by another writer in between is no error: the edit is made again.
func (d *Driver) edit(ctx context.Context, name string, change func(*cluster.Service) error) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	defer d.end()
	for {
		v, err := d.own(ctx, name)
		if err != nil {
			return err
		}
		svc := v.Service
		svc.Labels = maps.Clone(svc.Labels)
		if err := change(&svc); err != nil {
			return err
		}
		_, err = d.config.Client.PutService(ctx, svc, client.Condition{Revision: v.Revision})
		switch {
		case client.StatusOf(err) == http.StatusPreconditionFailed && ctx.Err() == nil:
			continue
		case err != nil:
			return problem(err)
		}
		return d.refresh(ctx)
	}
}

// own returns a service that was made here.
func (d *Driver) own(ctx context.Context, name string) (api.ServiceView, error) {
	v, err := d.config.Client.Service(ctx, cluster.DefaultCluster, name)
	switch {
	case client.StatusOf(err) == http.StatusNotFound,
		err == nil && v.Labels[labelNode] != d.config.Node:
		return v, respond.Problemf(http.StatusNotFound, "there is no task %s that was made over this API", name)
	case err != nil:
		return v, problem(err)
	case v.Deleted:
		return v, respond.Problemf(http.StatusConflict, "the task %s is being deleted", name)
	}
	return v, nil
}

// checksum identifies the content of a request.
func checksum(d *api.InlineDefinition) (string, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}

// problem passes a refusal of the node's own server on. Faults of the service are faults of the request, whose body is
// the template of the service.
func problem(err error) error {
	refused, ok := errors.AsType[*client.Error](err)
	if !ok {
		return respond.Problemf(http.StatusServiceUnavailable, "the node's own server does not answer: %v", err)
	}
	p := respond.Problemf(refused.Status, "%s", refused.Detail)
	for _, f := range refused.Faults {
		f.Path = strings.TrimPrefix(strings.TrimPrefix(f.Path, "template"), ".")
		p.Faults = append(p.Faults, f)
	}
	return p
}
