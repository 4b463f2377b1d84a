package recordjson

import "github.com/berthd/berth/internal/cluster"

// The functions below read the fields of each type in their order. A test fails where a field is missing.

func readObserved(r *reader, o *cluster.Observed) {
	textField(r, "task", &o.Task)
	numberField(r, "attempt", &o.Attempt)
	textField(r, "uuid", &o.UUID)
	textField(r, "node", &o.Node)
	unsignedField(r, "session", &o.Session)
	unsignedField(r, "seq", &o.Seq)
	refField(r, "definition", &o.Definition)
	numberField(r, "count", &o.Count)
	portsField(r, "ports", &o.Ports)
	devicesField(r, "devices", &o.Devices)
	unsignedField(r, "plan", &o.Plan)
	wordField(r, "state", &o.State)
	wordField(r, "health", &o.Health)
	wordField(r, "reason", &o.Reason)
	textField(r, "message", &o.Message)
	timeField(r, "started", &o.Started)
	timeField(r, "finished", &o.Finished)
	timeField(r, "since", &o.Since)
	numberField(r, "restarts", &o.Restarts)
	timeField(r, "next_start", &o.NextStart)
	if r.field("containers") {
		for o.Containers = []cluster.ContainerStatus{}; r.nextElement(len(o.Containers)); {
			readContainer(r, appendZero(&o.Containers))
		}
	}
	textField(r, "log_tail", &o.LogTail)
	textField(r, "ask", &o.Ask)
	boolField(r, "gone", &o.Gone)
	skipSeal(r)
	r.closeObject()
}

func readContainer(r *reader, c *cluster.ContainerStatus) {
	r.openObject()
	wordField(r, "name", &c.Name)
	wordField(r, "state", &c.State)
	numberField(r, "pid", &c.Pid)
	unsignedField(r, "pid_start", &c.PidStart)
	timeField(r, "started", &c.Started)
	numberField(r, "restarts", &c.Restarts)
	numberField(r, "ooms", &c.OOMs)
	if r.field("exit") {
		c.Exit = readExit(r)
	}
	r.closeObject()
}

func readExit(r *reader) *cluster.Exit {
	e := new(cluster.Exit)
	r.openObject()
	numberField(r, "code", &e.Code)
	numberField(r, "signal", &e.Signal)
	boolField(r, "oom", &e.OOM)
	timeField(r, "at", &e.At)
	boolField(r, "unknown", &e.Unknown)
	r.closeObject()
	return e
}

func readDevice(r *reader, d *cluster.DeviceUse) {
	r.openObject()
	textField(r, "id", &d.ID)
	numberField(r, "share", &d.Share)
	unsignedField(r, "memory", &d.Memory)
	r.closeObject()
}

// skipSeal reads past the seal, which is no field of the record.
func skipSeal(r *reader) {
	if r.field("seal") {
		r.text()
	}
}

func readDesired(r *reader, d *cluster.Desired) {
	textField(r, "task", &d.Task)
	numberField(r, "attempt", &d.Attempt)
	textField(r, "uuid", &d.UUID)
	textField(r, "node", &d.Node)
	ownerField(r, "owner", &d.Owner)
	refField(r, "definition", &d.Definition)
	numberField(r, "count", &d.Count)
	numberField(r, "priority", &d.Priority)
	portsField(r, "ports", &d.Ports)
	devicesField(r, "devices", &d.Devices)
	durationField(r, "time_limit", &d.TimeLimit)
	wordField(r, "on_disconnect", &d.OnDisconnect)
	tokenField(r, "token", &d.Token)
	timeField(r, "placed", &d.Placed)
	if r.field("stop") {
		d.Stop = readStop(r)
	}
	unsignedField(r, "plan", &d.Plan)
	textField(r, "trace", &d.Trace)
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
	wordField(r, "kind", &o.Kind)
	wordField(r, "cluster", &o.Cluster)
	wordField(r, "name", &o.Name)
	r.closeObject()
}

func readToken(r *reader, t *cluster.Token) {
	r.openObject()
	unsignedField(r, "g", &t.Generation)
	unsignedField(r, "i", &t.Incarnation)
	unsignedField(r, "e", &t.Epoch)
	r.closeObject()
}

func readStop(r *reader) *cluster.Stop {
	s := new(cluster.Stop)
	r.openObject()
	wordField(r, "class", &s.Class)
	wordField(r, "reason", &s.Reason)
	textField(r, "message", &s.Message)
	textField(r, "permit", &s.Permit)
	textField(r, "for", &s.For)
	numberField(r, "for_attempt", &s.ForAttempt)
	boolField(r, "ended", &s.Ended)
	r.closeObject()
	return s
}

func readRequestCounter(r *reader) *cluster.RequestCounter {
	m := new(cluster.RequestCounter)
	r.openObject()
	textField(r, "port", &m.Port)
	textField(r, "path", &m.Path)
	textField(r, "series", &m.Series)
	r.closeObject()
	return m
}

func readOutcome(r *reader, o *cluster.Outcome) {
	textField(r, "task", &o.Task)
	numberField(r, "attempt", &o.Attempt)
	textField(r, "uuid", &o.UUID)
	textField(r, "node", &o.Node)
	ownerField(r, "owner", &o.Owner)
	refField(r, "definition", &o.Definition)
	wordField(r, "state", &o.State)
	wordField(r, "reason", &o.Reason)
	textField(r, "message", &o.Message)
	boolField(r, "started", &o.Started)
	boolField(r, "free", &o.Free)
	timeField(r, "placed", &o.Placed)
	timeField(r, "begun", &o.Begun)
	timeField(r, "ended", &o.Ended)
	if r.field("exit") {
		o.Exit = readExit(r)
	}
	textField(r, "log_tail", &o.LogTail)
	r.closeObject()
}

func readPlanRecord(r *reader, p *cluster.PlanRecord) {
	unsignedField(r, "seq", &p.Seq)
	tokenField(r, "token", &p.Token)
	timeField(r, "at", &p.At)
	if r.field("owners") && !r.literal("null") {
		for p.Owners = []cluster.PlanOwner{}; r.nextElement(len(p.Owners)); {
			readPlanOwner(r, appendZero(&p.Owners))
		}
	}
	r.closeObject()
}

func readPlanOwner(r *reader, o *cluster.PlanOwner) {
	r.openObject()
	ownerField(r, "owner", &o.Owner)
	unsignedField(r, "rev", &o.Rev)
	unsignedField(r, "gen", &o.Generation)
	textField(r, "step", &o.Step)
	refField(r, "def", &o.Definition)
	numberField(r, "count", &o.Count)
	numberField(r, "prio", &o.Priority)
	durationField(r, "limit", &o.TimeLimit)
	wordField(r, "disc", &o.OnDisconnect)
	textField(r, "trace", &o.Trace)
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
	numberField(r, "i", &t.Index)
	numberField(r, "n", &t.Attempt)
	textField(r, "u", &t.UUID)
	wordField(r, "h", &t.Node)
	portsField(r, "p", &t.Ports)
	devicesField(r, "d", &t.Devices)
	r.closeObject()
}

func readEventBatch(r *reader, b *cluster.EventBatch) {
	textField(r, "id", &b.ID)
	unsignedField(r, "incarnation", &b.Incarnation)
	timeField(r, "at", &b.At)
	if r.field("events") && !r.literal("null") {
		for b.Events = make([]cluster.Event, 0, r.estimateElements(`{"type":`)); r.nextElement(len(b.Events)); {
			readEvent(r, appendZero(&b.Events))
		}
	}
	r.closeObject()
}

func readEvent(r *reader, e *cluster.Event) {
	r.openObject()
	wordField(r, "type", &e.Type)
	wordField(r, "cluster", &e.Cluster)
	if r.field("owner") {
		e.Owner = new(cluster.OwnerRef)
		readOwner(r, e.Owner)
	}
	textField(r, "task", &e.Task)
	numberField(r, "attempt", &e.Attempt)
	textField(r, "node", &e.Node)
	wordField(r, "reason", &e.Reason)
	wordField(r, "message", &e.Message)
	numberField(r, "count", &e.Count)
	wordField(r, "by", &e.By)
	r.closeObject()
}
