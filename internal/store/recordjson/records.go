package recordjson

import "github.com/berthd/berth/internal/cluster"

// The functions below read the fields of each type in their order. A test fails where a field is missing.

func readObserved(r *reader, o *cluster.Observed) {
	if r.field("task") {
		o.Task = cluster.TaskID(r.text())
	}
	if r.field("attempt") {
		o.Attempt = r.number()
	}
	if r.field("uuid") {
		o.UUID = r.text()
	}
	if r.field("node") {
		o.Node = r.text()
	}
	if r.field("session") {
		o.Session = r.unsigned()
	}
	if r.field("seq") {
		o.Seq = r.unsigned()
	}
	if r.field("definition") {
		o.Definition = r.ref()
	}
	if r.field("count") {
		o.Count = r.number()
	}
	if r.field("ports") {
		o.Ports = readMap(r, r.number)
	}
	if r.field("devices") {
		for o.Devices = []cluster.DeviceUse{}; r.nextElement(len(o.Devices)); {
			readDevice(r, appendZero(&o.Devices))
		}
	}
	if r.field("plan") {
		o.Plan = r.unsigned()
	}
	if r.field("state") {
		o.State = cluster.State(r.internedText())
	}
	if r.field("health") {
		o.Health = cluster.Health(r.internedText())
	}
	if r.field("reason") {
		o.Reason = cluster.ReasonCode(r.internedText())
	}
	if r.field("message") {
		o.Message = r.text()
	}
	if r.field("started") {
		o.Started = r.time()
	}
	if r.field("finished") {
		o.Finished = r.time()
	}
	if r.field("since") {
		o.Since = r.time()
	}
	if r.field("restarts") {
		o.Restarts = r.number()
	}
	if r.field("next_start") {
		o.NextStart = r.time()
	}
	if r.field("containers") {
		for o.Containers = []cluster.ContainerStatus{}; r.nextElement(len(o.Containers)); {
			readContainer(r, appendZero(&o.Containers))
		}
	}
	if r.field("log_tail") {
		o.LogTail = r.text()
	}
	if r.field("ask") {
		o.Ask = r.text()
	}
	if r.field("gone") {
		o.Gone = r.boolean()
	}
	skipSeal(r)
	r.closeObject()
}

func readContainer(r *reader, c *cluster.ContainerStatus) {
	r.openObject()
	if r.field("name") {
		c.Name = r.internedText()
	}
	if r.field("state") {
		c.State = cluster.ContainerState(r.internedText())
	}
	if r.field("pid") {
		c.Pid = r.number()
	}
	if r.field("pid_start") {
		c.PidStart = r.unsigned()
	}
	if r.field("started") {
		c.Started = r.time()
	}
	if r.field("restarts") {
		c.Restarts = r.number()
	}
	if r.field("ooms") {
		c.OOMs = r.number()
	}
	if r.field("exit") {
		c.Exit = readExit(r)
	}
	r.closeObject()
}

func readExit(r *reader) *cluster.Exit {
	e := new(cluster.Exit)
	r.openObject()
	if r.field("code") {
		e.Code = r.number()
	}
	if r.field("signal") {
		e.Signal = r.number()
	}
	if r.field("oom") {
		e.OOM = r.boolean()
	}
	if r.field("at") {
		e.At = r.time()
	}
	if r.field("unknown") {
		e.Unknown = r.boolean()
	}
	r.closeObject()
	return e
}

func readDevice(r *reader, d *cluster.DeviceUse) {
	r.openObject()
	if r.field("id") {
		d.ID = r.text()
	}
	if r.field("share") {
		d.Share = r.number()
	}
	if r.field("memory") {
		d.Memory = cluster.Bytes(r.unsigned())
	}
	r.closeObject()
}

// skipSeal reads past the seal, which is no field of the record.
func skipSeal(r *reader) {
	if r.field("seal") {
		r.text()
	}
}

func readDesired(r *reader, d *cluster.Desired) {
	if r.field("task") {
		d.Task = cluster.TaskID(r.text())
	}
	if r.field("attempt") {
		d.Attempt = r.number()
	}
	if r.field("uuid") {
		d.UUID = r.text()
	}
	if r.field("node") {
		d.Node = r.text()
	}
	if r.field("owner") {
		readOwner(r, &d.Owner)
	}
	if r.field("definition") {
		d.Definition = r.ref()
	}
	if r.field("count") {
		d.Count = r.number()
	}
	if r.field("priority") {
		d.Priority = r.number()
	}
	if r.field("ports") {
		d.Ports = readMap(r, r.number)
	}
	if r.field("devices") {
		for d.Devices = []cluster.DeviceUse{}; r.nextElement(len(d.Devices)); {
			readDevice(r, appendZero(&d.Devices))
		}
	}
	if r.field("time_limit") {
		d.TimeLimit = r.duration()
	}
	if r.field("on_disconnect") {
		d.OnDisconnect = cluster.OnDisconnect(r.internedText())
	}
	if r.field("token") {
		readToken(r, &d.Token)
	}
	if r.field("placed") {
		d.Placed = r.time()
	}
	if r.field("stop") {
		d.Stop = readStop(r)
	}
	if r.field("plan") {
		d.Plan = r.unsigned()
	}
	if r.field("trace") {
		d.Trace = r.text()
	}
	if r.field("meter") {
		d.RequestCounter = readRequestCounter(r)
	}
	if r.field("parameters") {
		d.Parameters = readMap(r, r.text)
	}
	skipSeal(r)
	r.closeObject()
}

func readOwner(r *reader, o *cluster.OwnerRef) {
	r.openObject()
	if r.field("kind") {
		o.Kind = cluster.Kind(r.internedText())
	}
	if r.field("cluster") {
		o.Cluster = r.internedText()
	}
	if r.field("name") {
		o.Name = r.internedText()
	}
	r.closeObject()
}

func readToken(r *reader, t *cluster.Token) {
	r.openObject()
	if r.field("g") {
		t.Generation = r.unsigned()
	}
	if r.field("i") {
		t.Incarnation = r.unsigned()
	}
	if r.field("e") {
		t.Epoch = r.unsigned()
	}
	r.closeObject()
}

func readStop(r *reader) *cluster.Stop {
	s := new(cluster.Stop)
	r.openObject()
	if r.field("class") {
		s.Class = cluster.StopClass(r.internedText())
	}
	if r.field("reason") {
		s.Reason = cluster.ReasonCode(r.internedText())
	}
	if r.field("message") {
		s.Message = r.text()
	}
	if r.field("permit") {
		s.Permit = r.text()
	}
	if r.field("for") {
		s.For = cluster.TaskID(r.text())
	}
	if r.field("for_attempt") {
		s.ForAttempt = r.number()
	}
	if r.field("ended") {
		s.Ended = r.boolean()
	}
	r.closeObject()
	return s
}

func readRequestCounter(r *reader) *cluster.RequestCounter {
	m := new(cluster.RequestCounter)
	r.openObject()
	if r.field("port") {
		m.Port = r.text()
	}
	if r.field("path") {
		m.Path = r.text()
	}
	if r.field("series") {
		m.Series = r.text()
	}
	r.closeObject()
	return m
}

func readOutcome(r *reader, o *cluster.Outcome) {
	if r.field("task") {
		o.Task = cluster.TaskID(r.text())
	}
	if r.field("attempt") {
		o.Attempt = r.number()
	}
	if r.field("uuid") {
		o.UUID = r.text()
	}
	if r.field("node") {
		o.Node = r.text()
	}
	if r.field("owner") {
		readOwner(r, &o.Owner)
	}
	if r.field("definition") {
		o.Definition = r.ref()
	}
	if r.field("state") {
		o.State = cluster.State(r.internedText())
	}
	if r.field("reason") {
		o.Reason = cluster.ReasonCode(r.internedText())
	}
	if r.field("message") {
		o.Message = r.text()
	}
	if r.field("started") {
		o.Started = r.boolean()
	}
	if r.field("free") {
		o.Free = r.boolean()
	}
	if r.field("placed") {
		o.Placed = r.time()
	}
	if r.field("begun") {
		o.Begun = r.time()
	}
	if r.field("ended") {
		o.Ended = r.time()
	}
	if r.field("exit") {
		o.Exit = readExit(r)
	}
	if r.field("log_tail") {
		o.LogTail = r.text()
	}
	r.closeObject()
}

func readPlanRecord(r *reader, p *cluster.PlanRecord) {
	if r.field("seq") {
		p.Seq = r.unsigned()
	}
	if r.field("token") {
		readToken(r, &p.Token)
	}
	if r.field("at") {
		p.At = r.time()
	}
	if r.field("owners") && !r.literal("null") {
		for p.Owners = []cluster.PlanOwner{}; r.nextElement(len(p.Owners)); {
			readPlanOwner(r, appendZero(&p.Owners))
		}
	}
	r.closeObject()
}

func readPlanOwner(r *reader, o *cluster.PlanOwner) {
	r.openObject()
	if r.field("owner") {
		readOwner(r, &o.Owner)
	}
	if r.field("rev") {
		o.Rev = r.unsigned()
	}
	if r.field("gen") {
		o.Generation = r.unsigned()
	}
	if r.field("step") {
		o.Step = r.text()
	}
	if r.field("def") {
		o.Definition = r.ref()
	}
	if r.field("count") {
		o.Count = r.number()
	}
	if r.field("prio") {
		o.Priority = r.number()
	}
	if r.field("limit") {
		o.TimeLimit = r.duration()
	}
	if r.field("disc") {
		o.OnDisconnect = cluster.OnDisconnect(r.internedText())
	}
	if r.field("trace") {
		o.Trace = r.text()
	}
	if r.field("meter") {
		o.RequestCounter = readRequestCounter(r)
	}
	if r.field("tasks") && !r.literal("null") {
		for o.Tasks = make([]cluster.Placed, 0, r.estimateElements(`{"i":`)); r.nextElement(len(o.Tasks)); {
			readPlaced(r, appendZero(&o.Tasks))
		}
	}
	r.closeObject()
}

func readPlaced(r *reader, t *cluster.Placed) {
	r.openObject()
	if r.field("i") {
		t.Index = r.number()
	}
	if r.field("n") {
		t.Attempt = r.number()
	}
	if r.field("u") {
		t.UUID = r.text()
	}
	if r.field("h") {
		t.Node = r.internedText()
	}
	if r.field("p") {
		t.Ports = readMap(r, r.number)
	}
	if r.field("d") {
		for t.Devices = []cluster.DeviceUse{}; r.nextElement(len(t.Devices)); {
			readDevice(r, appendZero(&t.Devices))
		}
	}
	r.closeObject()
}

func readEventBatch(r *reader, b *cluster.EventBatch) {
	if r.field("id") {
		b.ID = r.text()
	}
	if r.field("incarnation") {
		b.Incarnation = r.unsigned()
	}
	if r.field("at") {
		b.At = r.time()
	}
	if r.field("events") && !r.literal("null") {
		for b.Events = make([]cluster.Event, 0, r.estimateElements(`{"type":`)); r.nextElement(len(b.Events)); {
			readEvent(r, appendZero(&b.Events))
		}
	}
	r.closeObject()
}

func readEvent(r *reader, e *cluster.Event) {
	r.openObject()
	if r.field("type") {
		e.Type = r.internedText()
	}
	if r.field("cluster") {
		e.Cluster = r.internedText()
	}
	if r.field("owner") {
		e.Owner = new(cluster.OwnerRef)
		readOwner(r, e.Owner)
	}
	if r.field("task") {
		e.Task = cluster.TaskID(r.text())
	}
	if r.field("attempt") {
		e.Attempt = r.number()
	}
	if r.field("node") {
		e.Node = r.text()
	}
	if r.field("reason") {
		e.Reason = cluster.ReasonCode(r.internedText())
	}
	if r.field("message") {
		e.Message = r.internedText()
	}
	if r.field("count") {
		e.Count = r.number()
	}
	if r.field("by") {
		e.By = r.internedText()
	}
	r.closeObject()
}
