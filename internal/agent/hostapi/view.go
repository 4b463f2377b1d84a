package hostapi

import (
	"cmp"
	"maps"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/agent"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
)

// state returns all that runs on the node now, with its resources. Callers do not change it.
func (rs *readings) state() *api.HostState { return &rs.fresh().state }

// observe returns all that runs on the node now, with its resources.
func (rs *readings) observe() api.HostState {
	o := rs.config.Node.Observe()
	v := api.HostState{Node: rs.config.Name, Owner: rs.owner(&o), Tasks: []api.HostTask{}}
	var own []OwnTask
	if rs.config.Driver != nil {
		own = slices.Clone(rs.config.Driver.Tasks())
	}
	held := reserved{list: o.Facts.Devices, ports: map[int]bool{}}
	begun := map[cluster.OwnerRef]bool{}
	for i := range o.Tasks {
		t := taskOf(&o.Tasks[i])
		begun[t.Owner], t.Name = true, string(t.ID)
		setCounts(&t, t.ID, &o)
		held.add(t.Demand, t.Ports, o.Tasks[i].Observed.Devices)
		v.Tasks = append(v.Tasks, t)
	}
	for i := range own {
		t := &own[i].HostTask
		setCounts(t, cluster.ServiceTask(t.Owner.Cluster, t.Owner.Name, 0, 0), &o)
	}
	v.Tasks = joinOwn(v.Tasks, own, func(t *OwnTask) {
		if t.HoldsRoom && !begun[t.Owner] {
			held.add(t.Demand, t.Ports, held.devicesFor(t.Content))
		}
	})
	slices.SortFunc(v.Tasks, func(a, b api.HostTask) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Attempt, a.Attempt))
	})
	v.Resources = resourcesOf(&o, &held)
	return v
}

// setCounts sets the restarts of a task, and its kills for lack of memory, to those of all of its attempts on the node.
func setCounts(t *api.HostTask, id cluster.TaskID, o *agent.Observation) {
	if n, ok := o.CountsOf(id); ok {
		t.Restarts, t.OOMs = n.Restarts, n.OOMs
	}
}

// joinOwn gives the tasks that were made over this API their names, and adds those without an attempt. Of a task with
// several attempts on the node only the newest has the name.
func joinOwn(tasks []api.HostTask, own []OwnTask, without func(*OwnTask)) []api.HostTask {
	newestOf := map[cluster.OwnerRef]int{}
	for at := range tasks {
		if newest, ok := newestOf[tasks[at].Owner]; !ok || tasks[at].Attempt > tasks[newest].Attempt {
			newestOf[tasks[at].Owner] = at
		}
	}
	for i := range own {
		t := &own[i]
		newest, begun := newestOf[t.Owner]
		switch {
		case !begun:
			without(t)
			tasks = append(tasks, t.HostTask)
		case cluster.State(tasks[newest].State).Terminal():
			// The task was stopped or failed: what its owner says of it counts, and the numbers of its last attempt.
			shown, last := t.HostTask, tasks[newest]
			shown.ID, shown.Attempt, shown.UUID = last.ID, last.Attempt, last.UUID
			shown.Restarts, shown.OOMs, shown.Containers = last.Restarts, last.OOMs, last.Containers
			shown.Started, shown.Finished = last.Started, last.Finished
			tasks[newest] = shown
		default:
			tasks[newest].Name, tasks[newest].Own, tasks[newest].Replaces = t.Name, true, t.Replaces
		}
	}
	return tasks
}

// owner says who drives the node.
func (rs *readings) owner(o *agent.Observation) api.HostOwner {
	return api.HostOwner{
		DrivesItself: rs.config.Driver != nil, Domain: o.Ownership.Domain, Servers: o.Ownership.Servers,
		Generation: o.Ownership.Token.Generation, Answered: o.Ownership.Answered,
	}
}

// taskOf shows an attempt.
func taskOf(t *agent.LocalTask) api.HostTask {
	o := &t.Observed
	v := api.HostTask{
		State: string(o.State), Reason: o.Reason, Message: o.Message, ID: o.Task, Attempt: o.Attempt, UUID: o.UUID,
		Definition: o.Definition, Ports: o.Ports, Restarts: o.Restarts, Started: o.Started, Finished: o.Finished,
		NextStart: o.NextStart, Containers: o.Containers,
	}
	if o.State == cluster.StateRunning {
		v.Health = o.Health
	}
	for i := range o.Containers {
		v.OOMs += o.Containers[i].OOMs
	}
	if parts, ok := o.Task.Parts(); ok {
		kind := cluster.KindService
		if parts.Step != "" {
			kind = cluster.KindJob
		}
		v.Owner = cluster.OwnerRef{Kind: kind, Cluster: parts.Cluster, Name: parts.Owner}
	}
	if t.Definition != nil {
		v.Demand = t.Definition.Demand()
	}
	return v
}

// reserved is what the tasks of a node reserve together.
type reserved struct {
	demand  cluster.Demand
	ports   map[int]bool
	list    []cluster.Device // of the node
	devices devices.Uses
}

func (r *reserved) add(d cluster.Demand, ports map[string]int, uses []cluster.DeviceUse) {
	r.demand = r.demand.Add(d)
	for _, u := range uses {
		r.devices = r.devices.Add(u, 1)
	}
	for _, port := range ports { // order-free: a set
		r.ports[port] = true
	}
}

// devicesFor returns devices that meet the requests of a definition, nil if it is not known.
func (r *reserved) devicesFor(d *cluster.TaskDefinition) []cluster.DeviceUse {
	if d == nil {
		return nil
	}
	return devices.FreeFor(r.list, r.devices, devices.Requests(d.Devices()))
}

// resourcesOf shows what the node has, what its tasks reserve and what it uses.
func resourcesOf(o *agent.Observation, held *reserved) api.HostResources {
	f := &o.Facts
	v := api.HostResources{
		CPU:    api.HostCPU{Total: f.CPU, Reserved: held.demand.CPU},
		Memory: api.HostBytes{Total: f.Memory, Reserved: held.demand.Memory},
		Disk:   api.HostBytes{Total: f.Disk, Reserved: held.demand.Disk},
		Ports: api.HostPorts{
			First: cluster.FirstAutoPort, Last: cluster.LastAutoPort,
			Reserved: cluster.PortRangesOf(f.ReservedPorts), Taken: slices.Sorted(maps.Keys(held.ports)),
		},
	}
	for i := range held.list {
		d := api.HostDevice{Device: held.list[i]}
		if at, found := held.devices.Find(d.ID); found {
			d.Reserved, d.ReservedMemory = held.devices[at].Share, held.devices[at].Memory
		}
		v.Devices = append(v.Devices, d)
	}
	if f.Folders != nil {
		v.Volumes = f.Folders.HostVolumes
	}
	if u := o.Stats; u != nil {
		v.CPU.Used, v.Memory.Used, v.Disk.Used, v.Measured = u.CPU, u.Memory, u.Disk, u.At
	}
	return v
}
