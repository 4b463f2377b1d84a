package store

import "github.com/berthd/berth/internal/cluster"

// The fields of each type in their order. A test fails where one is missing.

func (r *reader) observed(o *cluster.Observed) {
	if r.has("task") {
		o.Task = cluster.TaskID(r.text())
	}
	if r.has("attempt") {
		o.Attempt = r.number()
	}
	if r.has("uuid") {
		o.UUID = r.text()
	}
	if r.has("node") {
		o.Node = r.text()
	}
	if r.has("session") {
		o.Session = r.unsigned()
	}
	if r.has("seq") {
		o.Seq = r.unsigned()
	}
	if r.has("definition") {
		o.Definition = r.ref()
	}
	if r.has("count") {
		o.Count = r.number()
	}
	if r.has("ports") {
		o.Ports = r.ports()
	}
	if r.has("devices") {
		for o.Devices = []cluster.DeviceUse{}; r.element(len(o.Devices)); {
			r.device(extended(&o.Devices))
		}
	}
	if r.has("plan") {
		o.Plan = r.unsigned()
	}
	if r.has("state") {
		o.State = cluster.State(r.name())
	}
	if r.has("health") {
		o.Health = cluster.Health(r.name())
	}
	if r.has("reason") {
		o.Reason = cluster.ReasonCode(r.name())
	}
	if r.has("message") {
		o.Message = r.text()
	}
	if r.has("started") {
		o.Started = r.time()
	}
	if r.has("finished") {
		o.Finished = r.time()
	}
	if r.has("since") {
		o.Since = r.time()
	}
	if r.has("restarts") {
		o.Restarts = r.number()
	}
	if r.has("containers") {
		for o.Containers = []cluster.ContainerStatus{}; r.element(len(o.Containers)); {
			r.container(extended(&o.Containers))
		}
	}
	if r.has("log_tail") {
		o.LogTail = r.text()
	}
	if r.has("ask") {
		o.Ask = r.text()
	}
	if r.has("gone") {
		o.Gone = r.truth()
	}
	r.sealed()
	r.close()
}

func (r *reader) container(c *cluster.ContainerStatus) {
	r.open()
	if r.has("name") {
		c.Name = r.name()
	}
	if r.has("state") {
		c.State = cluster.ContainerState(r.name())
	}
	if r.has("pid") {
		c.Pid = r.number()
	}
	if r.has("pid_start") {
		c.PidStart = r.unsigned()
	}
	if r.has("started") {
		c.Started = r.time()
	}
	if r.has("restarts") {
		c.Restarts = r.number()
	}
	if r.has("ooms") {
		c.OOMs = r.number()
	}
	if r.has("exit") {
		c.Exit = r.exit()
	}
	r.close()
}

func (r *reader) exit() *cluster.Exit {
	e := new(cluster.Exit)
	r.open()
	if r.has("code") {
		e.Code = r.number()
	}
	if r.has("signal") {
		e.Signal = r.number()
	}
	if r.has("oom") {
		e.OOM = r.truth()
	}
	if r.has("at") {
		e.At = r.time()
	}
	if r.has("unknown") {
		e.Unknown = r.truth()
	}
	r.close()
	return e
}

func (r *reader) device(d *cluster.DeviceUse) {
	r.open()
	if r.has("id") {
		d.ID = r.text()
	}
	if r.has("share") {
		d.Share = r.number()
	}
	if r.has("memory") {
		d.Memory = cluster.Bytes(r.unsigned())
	}
	r.close()
}

// sealed passes over the seal, which is of the bytes and not of the record.
func (r *reader) sealed() {
	if r.has("seal") {
		r.text()
	}
}

func (r *reader) desired(d *cluster.Desired) {
	if r.has("task") {
		d.Task = cluster.TaskID(r.text())
	}
	if r.has("attempt") {
		d.Attempt = r.number()
	}
	if r.has("uuid") {
		d.UUID = r.text()
	}
	if r.has("node") {
		d.Node = r.text()
	}
	if r.has("owner") {
		r.owner(&d.Owner)
	}
	if r.has("definition") {
		d.Definition = r.ref()
	}
	if r.has("count") {
		d.Count = r.number()
	}
	if r.has("priority") {
		d.Priority = r.number()
	}
	if r.has("ports") {
		d.Ports = r.ports()
	}
	if r.has("devices") {
		for d.Devices = []cluster.DeviceUse{}; r.element(len(d.Devices)); {
			r.device(extended(&d.Devices))
		}
	}
	if r.has("time_limit") {
		d.TimeLimit = r.duration()
	}
	if r.has("on_disconnect") {
		d.OnDisconnect = cluster.OnDisconnect(r.name())
	}
	if r.has("token") {
		r.token(&d.Token)
	}
	if r.has("placed") {
		d.Placed = r.time()
	}
	if r.has("stop") {
		d.Stop = r.stop()
	}
	if r.has("plan") {
		d.Plan = r.unsigned()
	}
	if r.has("trace") {
		d.Trace = r.text()
	}
	if r.has("meter") {
		d.Meter = r.meter()
	}
	r.sealed()
	r.close()
}

func (r *reader) owner(o *cluster.OwnerRef) {
	r.open()
	if r.has("kind") {
		o.Kind = cluster.Kind(r.name())
	}
	if r.has("cluster") {
		o.Cluster = r.name()
	}
	if r.has("name") {
		o.Name = r.name()
	}
	r.close()
}

func (r *reader) token(t *cluster.Token) {
	r.open()
	if r.has("g") {
		t.Generation = r.unsigned()
	}
	if r.has("i") {
		t.Incarnation = r.unsigned()
	}
	if r.has("e") {
		t.Epoch = r.unsigned()
	}
	r.close()
}

func (r *reader) stop() *cluster.Stop {
	s := new(cluster.Stop)
	r.open()
	if r.has("class") {
		s.Class = cluster.StopClass(r.name())
	}
	if r.has("reason") {
		s.Reason = cluster.ReasonCode(r.name())
	}
	if r.has("message") {
		s.Message = r.text()
	}
	if r.has("permit") {
		s.Permit = r.text()
	}
	if r.has("for") {
		s.For = cluster.TaskID(r.text())
	}
	if r.has("for_attempt") {
		s.ForAttempt = r.number()
	}
	if r.has("ended") {
		s.Ended = r.truth()
	}
	r.close()
	return s
}

func (r *reader) meter() *cluster.Meter {
	m := new(cluster.Meter)
	r.open()
	if r.has("port") {
		m.Port = r.text()
	}
	if r.has("path") {
		m.Path = r.text()
	}
	if r.has("series") {
		m.Series = r.text()
	}
	r.close()
	return m
}

func (r *reader) outcome(o *cluster.Outcome) {
	if r.has("task") {
		o.Task = cluster.TaskID(r.text())
	}
	if r.has("attempt") {
		o.Attempt = r.number()
	}
	if r.has("uuid") {
		o.UUID = r.text()
	}
	if r.has("node") {
		o.Node = r.text()
	}
	if r.has("owner") {
		r.owner(&o.Owner)
	}
	if r.has("definition") {
		o.Definition = r.ref()
	}
	if r.has("state") {
		o.State = cluster.State(r.name())
	}
	if r.has("reason") {
		o.Reason = cluster.ReasonCode(r.name())
	}
	if r.has("message") {
		o.Message = r.text()
	}
	if r.has("started") {
		o.Started = r.truth()
	}
	if r.has("free") {
		o.Free = r.truth()
	}
	if r.has("placed") {
		o.Placed = r.time()
	}
	if r.has("begun") {
		o.Begun = r.time()
	}
	if r.has("ended") {
		o.Ended = r.time()
	}
	if r.has("exit") {
		o.Exit = r.exit()
	}
	if r.has("log_tail") {
		o.LogTail = r.text()
	}
	r.close()
}

func (r *reader) plan(p *cluster.PlanRecord) {
	if r.has("seq") {
		p.Seq = r.unsigned()
	}
	if r.has("token") {
		r.token(&p.Token)
	}
	if r.has("at") {
		p.At = r.time()
	}
	if r.has("owners") && !r.word("null") {
		for p.Owners = []cluster.PlanOwner{}; r.element(len(p.Owners)); {
			r.planOwner(extended(&p.Owners))
		}
	}
	r.close()
}

func (r *reader) planOwner(o *cluster.PlanOwner) {
	r.open()
	if r.has("owner") {
		r.owner(&o.Owner)
	}
	if r.has("rev") {
		o.Rev = r.unsigned()
	}
	if r.has("gen") {
		o.Generation = r.unsigned()
	}
	if r.has("step") {
		o.Step = r.text()
	}
	if r.has("def") {
		o.Definition = r.ref()
	}
	if r.has("count") {
		o.Count = r.number()
	}
	if r.has("prio") {
		o.Priority = r.number()
	}
	if r.has("limit") {
		o.TimeLimit = r.duration()
	}
	if r.has("disc") {
		o.OnDisconnect = cluster.OnDisconnect(r.name())
	}
	if r.has("trace") {
		o.Trace = r.text()
	}
	if r.has("meter") {
		o.Meter = r.meter()
	}
	if r.has("tasks") && !r.word("null") {
		for o.Tasks = make([]cluster.Placed, 0, r.many(`{"i":`)); r.element(len(o.Tasks)); {
			r.placed(extended(&o.Tasks))
		}
	}
	r.close()
}

func (r *reader) placed(t *cluster.Placed) {
	r.open()
	if r.has("i") {
		t.Index = r.number()
	}
	if r.has("n") {
		t.Attempt = r.number()
	}
	if r.has("u") {
		t.UUID = r.text()
	}
	if r.has("h") {
		t.Node = r.name()
	}
	if r.has("p") {
		t.Ports = r.ports()
	}
	if r.has("d") {
		for t.Devices = []cluster.DeviceUse{}; r.element(len(t.Devices)); {
			r.device(extended(&t.Devices))
		}
	}
	r.close()
}

func (r *reader) events(b *cluster.EventBatch) {
	if r.has("id") {
		b.ID = r.text()
	}
	if r.has("incarnation") {
		b.Incarnation = r.unsigned()
	}
	if r.has("at") {
		b.At = r.time()
	}
	if r.has("events") && !r.word("null") {
		for b.Events = make([]cluster.Event, 0, r.many(`{"type":`)); r.element(len(b.Events)); {
			r.event(extended(&b.Events))
		}
	}
	r.close()
}

func (r *reader) event(e *cluster.Event) {
	r.open()
	if r.has("type") {
		e.Type = r.name()
	}
	if r.has("cluster") {
		e.Cluster = r.name()
	}
	if r.has("owner") {
		e.Owner = new(cluster.OwnerRef)
		r.owner(e.Owner)
	}
	if r.has("task") {
		e.Task = cluster.TaskID(r.text())
	}
	if r.has("attempt") {
		e.Attempt = r.number()
	}
	if r.has("node") {
		e.Node = r.text()
	}
	if r.has("reason") {
		e.Reason = cluster.ReasonCode(r.name())
	}
	if r.has("message") {
		e.Message = r.name()
	}
	if r.has("count") {
		e.Count = r.number()
	}
	if r.has("by") {
		e.By = r.name()
	}
	r.close()
}
