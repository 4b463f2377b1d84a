package hostapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
)

// driver returns the driver of the node. On a node that a domain drives, the error names the owner.
func (s *Server) driver() (Driver, error) {
	if s.config.Driver != nil {
		return s.config.Driver, nil
	}
	o := s.config.Node.Observe().Ownership
	owner := "a domain that it has not met yet"
	if o.Domain != "" {
		owner = "the domain " + o.Domain
	}
	if o.Token.Generation > 0 {
		owner += fmt.Sprintf(", generation %d", o.Token.Generation)
	}
	if len(o.Servers) > 0 {
		owner += ", with the servers " + strings.Join(o.Servers, ", ")
	}
	return nil, respond.Problemf(http.StatusConflict, "the node %s belongs to %s. Only its owner changes its tasks: "+
		"use `berth run`, `berth stop`, `berth start` and `berth delete` with such a server", s.config.Name, owner)
}

// createTask makes a task: 201, or 200 if the same task exists. With ?replace= it also starts the task: 202.
func (s *Server) createTask(w http.ResponseWriter, r *http.Request) error {
	d, err := s.driver()
	if err != nil {
		return err
	}
	name := r.PathValue(pathTask)
	c := Creation{Name: name, Replace: r.URL.Query().Get("replace"), Fits: s.readings.fits}
	if !cluster.ValidName(name) {
		return respond.Problemf(http.StatusBadRequest,
			"%q cannot be the name of a task: want 1 to 63 of a-z, 0-9 and \"-\", a letter first, no \"-\" last", name)
	}
	if c.Replace != "" && !cluster.ValidName(c.Replace) {
		return route.BadQuery("replace", "%q cannot be the name of a task", respond.Clip(c.Replace))
	}
	if c.Replace == name {
		return route.BadQuery("replace", "names the new task itself: choose another name for the new task")
	}
	if err := s.readDefinition(w, r, &c.Definition); err != nil {
		return badRequest(err)
	}
	created, err := d.Create(r.Context(), c)
	if err != nil {
		return badRequest(err)
	}
	switch {
	case c.Replace != "":
		s.logWrite(r, "replace", name)
		return accepted(w)
	case created:
		s.logWrite(r, "create", name)
		w.WriteHeader(http.StatusCreated)
		return nil
	}
	return respond.JSON(w, http.StatusOK, struct{}{})
}

// readDefinition reads the body of a new task.
func (s *Server) readDefinition(w http.ResponseWriter, r *http.Request, into *api.InlineDefinition) error {
	text, err := strictjson.ReadText(w, r, maxDefinitionBody)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return respond.Problemf(http.StatusRequestEntityTooLarge, "the body is larger than %s: a task definition has "+
			"at most %s. Put large files into an image or a volume", cluster.Bytes(maxDefinitionBody),
			cluster.Bytes(cluster.MaxDefinition))
	}
	if err != nil {
		return err
	}
	s.limits.decoders <- struct{}{}
	defer func() { <-s.limits.decoders }()
	faults, err := strictjson.Decode(text, into)
	if err == nil && len(faults) > 0 {
		err = respond.Invalid(faults)
	}
	return err
}

// badRequest gives faults of a body the status 400 of this API.
func badRequest(err error) error {
	p := respond.ProblemOf(err)
	if p.Status == http.StatusUnprocessableEntity {
		p.Status, p.Title = http.StatusBadRequest, http.StatusText(http.StatusBadRequest)
	}
	return p
}

// fits returns why the node cannot run a task, or has no room for it, or nil. A created task keeps its room before it
// ever runs.
func (rs *readings) fits(d *cluster.TaskDefinition) error {
	if faults := d.FolderFaults(rs.config.Node.Observe().Facts.Folders); len(faults) > 0 {
		p := respond.Invalid(faults)
		p.Detail = "the node " + rs.config.Name + " does not share what the task needs"
		return p
	}
	resources := rs.state().Resources
	var short []string
	need := d.Demand()
	if free := resources.CPU.Total - resources.CPU.Reserved; need.CPU > free {
		short = append(short, fmt.Sprintf("it needs %s CPU, and %s is free", need.CPU, max(free, 0)))
	}
	if free := resources.Memory.Total - resources.Memory.Reserved; need.Memory > free {
		short = append(short, fmt.Sprintf("it needs %s of memory, and %s is free", need.Memory, max(free, 0)))
	}
	if free := resources.Disk.Total - resources.Disk.Reserved; need.Disk > free {
		short = append(short, fmt.Sprintf("it needs %s of disk, and %s is free", need.Disk, max(free, 0)))
	}
	for i := range d.Ports {
		switch p := &d.Ports[i]; {
		case p.Port == 0:
		case slices.Contains(resources.Ports.Taken, p.Port):
			short = append(short, fmt.Sprintf("the port %d is taken", p.Port))
		case slices.Contains(cluster.Ports(resources.Ports.Reserved), p.Port):
			short = append(short, fmt.Sprintf("the port %d is kept from tasks", p.Port))
		}
	}
	if text := shortOfDevices(resources.Devices, d); text != "" {
		short = append(short, text)
	}
	if len(short) == 0 {
		return nil
	}
	return respond.Problemf(http.StatusConflict, "the node %s has no room for the task: %s. A stopped task keeps its "+
		"room until it is deleted", rs.config.Name, strings.Join(short, "; "))
}

// shortOfDevices describes a request for devices that a node cannot meet, "" if it can meet all of them.
func shortOfDevices(all []api.HostDevice, d *cluster.TaskDefinition) string {
	var list []cluster.Device
	var used devices.Uses
	for i := range all {
		list = append(list, all[i].Device)
		if all[i].Reserved > 0 {
			used = used.Add(cluster.DeviceUse{
				ID: all[i].ID, Share: all[i].Reserved, Memory: all[i].ReservedMemory,
			}, 1)
		}
	}
	requests := devices.Requests(d.Devices())
	_, lacking, used := devices.Assign(list, used, requests)
	if lacking < 0 {
		return ""
	}
	text, _ := devices.Text(list, used, &requests[lacking])
	return text
}

func (s *Server) startTask(w http.ResponseWriter, r *http.Request) error {
	return s.change(w, r, "start", func(ctx context.Context, d Driver, name string) error { return d.Start(ctx, name) })
}

func (s *Server) stopTask(w http.ResponseWriter, r *http.Request) error {
	return s.change(w, r, "stop", func(ctx context.Context, d Driver, name string) error { return d.Stop(ctx, name) })
}

// change carries out a change that the node completes later.
func (s *Server) change(w http.ResponseWriter, r *http.Request, verb string,
	do func(context.Context, Driver, string) error,
) error {
	d, err := s.driver()
	if err != nil {
		return err
	}
	name, err := s.ownName(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
	defer cancel()
	if err := do(ctx, d, name); err != nil {
		return err
	}
	s.logWrite(r, verb, name)
	return accepted(w)
}

func (s *Server) deleteTask(w http.ResponseWriter, r *http.Request) error {
	d, err := s.driver()
	if err != nil {
		return err
	}
	name, err := s.ownName(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
	defer cancel()
	if err := d.Delete(ctx, name); err != nil {
		return err
	}
	s.logWrite(r, "delete", name)
	return respond.JSON(w, http.StatusOK, struct{}{})
}

// ownName returns the name of a task that this API may change.
func (s *Server) ownName(r *http.Request) (string, error) {
	t, err := s.readings.find(r)
	if err != nil {
		return "", err
	}
	if !t.Own {
		return "", respond.Problemf(http.StatusConflict, "the task %s belongs to the %s %s/%s, which was not made "+
			"over this API: change it with `berth run`, `berth stop`, `berth start` or `berth delete`", t.Name,
			strings.ToLower(string(t.Owner.Kind)), t.Owner.Cluster, t.Owner.Name)
	}
	return t.Name, nil
}

func (s *Server) logWrite(r *http.Request, verb, task string) {
	s.config.Log.Info("a task was changed over the API of the node", "verb", verb, "name", task, "caller", callerOf(r))
}

// writeOperations returns the routes of the operations that change tasks.
func (s *Server) writeOperations() []route.Route {
	return []route.Route{
		{
			Method: "PUT", Path: "/v1/tasks/{name_or_id}", Name: "createTask", Status: http.StatusCreated,
			Summary: "Creates a task without starting it: 201, or 200 if it exists with the same content. 409 if the " +
				"name is taken or the node has no room. 400 has all faults of the body. With replace, 202: the new " +
				"task starts, and the old one is deleted once the new one is healthy. If the new one fails, the old " +
				"one stays.",
			Query: []route.Parameter{route.QueryParam("replace", "string", "the name of the task to replace")},
			Body:  reflect.TypeFor[api.InlineDefinition](), Serve: s.createTask,
		},
		{
			Method: "POST", Path: "/v1/tasks/{name_or_id}/start", Name: "startTask", Status: http.StatusAccepted,
			Summary: "Starts a task. 409 if it runs already.", Serve: s.startTask,
		},
		{
			Method: "POST", Path: "/v1/tasks/{name_or_id}/stop", Name: "stopTask", Status: http.StatusAccepted,
			Summary: "Stops a task with TERM, and with KILL after its grace. It keeps its room. 409 if it is stopped.",
			Serve:   s.stopTask,
		},
		{
			Method: "DELETE", Path: "/v1/tasks/{name_or_id}", Name: "deleteTask",
			Summary: "Deletes a stopped task and frees its room. 409 if it runs.", Serve: s.deleteTask,
		},
	}
}
