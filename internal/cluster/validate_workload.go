package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of a job's spans.
const (
	MinTimeLimit = Duration(time.Second)
	MaxTimeLimit = Duration(365 * 24 * time.Hour)
	MinKeep      = Duration(time.Minute) // of KeepJobs and Job.Keep
)

// maxConstraints limits the constraints of an owner and the values of one constraint.
const maxConstraints = 64

// Validate returns all faults of the cluster as Faults, or nil. Omitted fields count with their defaults.
func (c *Cluster) Validate() error {
	c = c.completed()
	k := newCheck()
	k.at("name").name(c.Name)
	k.at("labels").labels(c.Labels)
	k.at("domain").name(c.Domain)
	k.constraints("constraints", c.Constraints)
	k.at("strategy").strategy(c.Strategy)
	if c.Preemption != "" {
		oneOf(k.at("preemption"), c.Preemption)
	}
	k.at("keep_jobs").must(c.KeepJobs >= MinKeep, "is %s, want %s at least", c.KeepJobs, MinKeep)
	c.validatePermissions(k.at("permissions"))
	c.Quota.validate(k.at("quota"))
	c.Queue.validate(k.at("queue"))
	return k.err()
}

// Validate returns all faults of the job as Faults, or nil. Omitted fields count with their defaults. It checks the job
// only.
func (j *Job) Validate() error {
	j = j.completed()
	k := newCheck()
	k.at("cluster").name(j.Cluster)
	k.at("name").name(j.Name)
	k.at("labels").labels(j.Labels)
	k.at("key").label(j.Key)
	k.ownerNeeds(j.Needs, j.Owner())
	k.at("priority").within(int(j.Priority), 1, MaxPriority)
	j.Concurrency.validateOfJob(k.at("concurrency"))
	k.deadline(j.Deadline)
	k.at("keep").must(j.Keep == 0 || j.Keep >= MinKeep, "is %s, want %s at least", j.Keep, MinKeep)
	k.steps(j.Steps)
	return k.err()
}

func (c check) deadline(d Duration) {
	if d != 0 {
		c.at("deadline").span(d, MinTimeLimit, MaxTimeLimit)
	}
}

func (c check) steps(steps []Step) {
	c.at("steps").must(len(steps) > 0, "is empty: a job needs at least one step")
	c.at("steps").must(len(steps) <= MaxSteps, "holds %d steps, at most %d are allowed", len(steps), MaxSteps)
	names := make([]string, len(steps))
	total, size, needs := 0, 0, 0
	for i := range steps {
		s := &steps[i]
		names[i] = s.Name
		needs += len(s.Needs)
		total += max(0, min(s.Count, MaxJobTasks))
		size += s.Parameters.size()
		s.validate(c.index("steps", i))
	}
	c.unique("steps", names)
	if needs <= MaxStepNeeds {
		c.needs(steps, names)
	} else {
		c.at("steps").fault("need %d steps together, at most %d are allowed: let a step between them need all, and be "+
			"needed by all", needs, MaxStepNeeds)
	}
	c.templates(steps)
	c.at("steps").must(total <= MaxJobTasks, "request %d tasks together, at most %d are allowed in a job", total,
		MaxJobTasks)
	c.at("steps").must(size <= MaxParameterBytes, "have %d bytes of parameters together, at most %d are allowed: "+
		"give each task the name of a file or of an address that has its input", size, MaxParameterBytes)
}

// templates limits the different templates of steps, since each becomes a definition.
func (c check) templates(steps []Step) {
	if len(steps) <= MaxTemplates {
		return
	}
	different := map[string]bool{}
	for i := range steps {
		if t := steps[i].Template; t != nil {
			different[t.content()] = true
		}
	}
	c.at("steps").must(len(different) <= MaxTemplates, "have %d different templates, at most %d are allowed: give "+
		"steps the same template and different parameters, or let them refer to task definitions", len(different),
		MaxTemplates)
}

// needs demands that each step needs other steps of the job, each once and in no circle.
func (c check) needs(steps []Step, names []string) {
	position := make(map[string]int, len(names))
	for i, name := range names {
		position[name] = i
	}
	valid := true
	for i := range steps {
		s := &steps[i]
		at := c.index("steps", i)
		at.at("requires").must(s.Requires == "" || len(s.Needs) > 0, "has no effect without needs")
		valid = valid && len(s.Needs) <= MaxNeeds
		for k, name := range bounded(at.at("needs"), s.Needs, MaxNeeds, "steps") {
			_, known := position[name]
			var fault string
			switch {
			case name == s.Name:
				fault = "%q is the step itself"
			case !known:
				fault = "there is no step %q in the job"
			case slices.Index(s.Needs, name) < k:
				fault = "%q is there twice"
			default:
				continue
			}
			at.index("needs", k).fault(fault, clip(name))
			valid = false
		}
	}
	if !valid {
		return
	}
	if circle := needsCircle(steps, position); circle != nil {
		first := slices.Index(steps[position[circle[0]]].Needs, circle[1])
		c.index("steps", position[circle[0]]).index("needs", first).fault("the steps need each other in a circle: %s",
			circleText(circle))
	}
}

// circleText returns a circle of steps as a text. The middle of a long one is left out.
func circleText(circle []string) string {
	const head, tail = 6, 3
	if left := len(circle) - head - tail; left > 1 {
		between := fmt.Sprintf("%d others", left)
		circle = slices.Concat(circle[:head], []string{between}, circle[len(circle)-tail:])
	}
	return strings.Join(circle, " → ")
}

// needsCircle returns the names of steps that need each other in a circle, the first one again at the end, or nil.
func needsCircle(steps []Step, position map[string]int) []string {
	const (
		unseen = iota
		open
		closed
	)
	states := make([]int, len(steps))
	var path []string
	var walk func(i int) []string
	walk = func(i int) []string {
		states[i] = open
		path = append(path, steps[i].Name)
		for _, name := range steps[i].Needs {
			switch k := position[name]; states[k] {
			case open:
				return append(path[slices.Index(path, name):], name)
			case unseen:
				if circle := walk(k); circle != nil {
					return circle
				}
			}
		}
		path = path[:len(path)-1]
		states[i] = closed
		return nil
	}
	for i := range steps {
		if states[i] != unseen {
			continue
		}
		if circle := walk(i); circle != nil {
			return circle
		}
	}
	return nil
}

func (s *Step) validate(k check) {
	k.at("name").name(s.Name)
	oneOf(k.at("requires"), cmp.Or(s.Requires, RequireCompleted))
	k.definition(s.Definition, s.Template)
	k.at("count").within(s.Count, 1, MaxJobTasks)
	s.Parameters.validate(k.at("parameters"), s.Count)
	k.at("parallelism").within(s.Parallelism, 0, MaxJobTasks)
	s.Concurrency.validate(k.at("concurrency"), s.Gang != nil, s.Count)
	k.at("parallelism").must(s.Parallelism == 0 || s.Gang == nil, "has no effect in a gang, whose tasks run together")
	k.at("retries").within(s.Retries, 0, MaxRetries)
	s.ExitCodes.validate(k.at("exit_codes"), s.Retries)
	if s.TimeLimit != 0 {
		k.at("time_limit").span(s.TimeLimit, MinTimeLimit, MaxTimeLimit)
	}
	k.at("placement").placement(s.Placement, false)
	oneOf(k.at("on_disconnect"), s.OnDisconnect)
	if s.Gang != nil {
		s.Gang.validate(k.at("gang"), s.Count)
	}
}

func (e *ExitCodes) validate(k check, retries int) {
	if e == nil {
		return
	}
	k.must(len(e.Intermittent) == 0 || len(e.Final) == 0,
		"has both lists: leave out final, because with intermittent every other code is final")
	k.must(len(e.Intermittent)+len(e.Final) > 0, "is empty: list codes as intermittent or as final")
	k.must(retries > 0, "has no effect without retries: every code is final")
	k.exitCodes("intermittent", e.Intermittent)
	k.exitCodes("final", e.Final)
}

func (c check) exitCodes(field string, codes []int) {
	for i, code := range bounded(c.at(field), codes, MaxExitCodes, "codes") {
		c.index(field, i).within(code, 1, 255)
		c.index(field, i).must(!slices.Contains(codes[:i], code), "%d is there twice", code)
	}
}

// definition requires either a reference to a task definition or an inline one.
func (c check) definition(r Ref, inline *InlineDefinition) {
	if inline == nil {
		c.at("definition").ref(r)
		return
	}
	c.at("definition").must(r == Ref{}, "is %s beside a template: leave out one of the two", r)
	inline.validate(c.at("template"))
}

func (c check) ref(r Ref) {
	switch {
	case r.Name == "":
		c.fault("is missing: write definition: NAME@VERSION, or template: with the containers")
	case !ValidName(r.Name) || r.Version < 0:
		c.fault("%q is not a reference to a task definition: want name@version", clip(r.String()))
	}
}

// within demands a number between two bounds, both allowed.
func (c check) within(n, low, high int) {
	c.must(n >= low && n <= high, "is %d, want a number from %d to %d", n, low, high)
}

// span demands a duration between two bounds, both allowed.
func (c check) span(d, low, high Duration) {
	c.must(d >= low && d <= high, "is %s, want a duration from %s to %s", d, low, high)
}

func (c check) constraints(field string, list []Constraint) {
	c.at(field).must(len(list) <= maxConstraints, "holds %d constraints, at most %d are allowed", len(list),
		maxConstraints)
	for i := range list {
		list[i].validate(c.index(field, i))
	}
}

func (n *Constraint) validate(k check) {
	k.at("attribute").attribute(n.Attribute)
	known := oneOf(k.at("op"), n.Op)
	k.at("value").label(n.Value)
	k.at("values").must(len(n.Values) <= maxConstraints, "holds %d values, at most %d are allowed", len(n.Values),
		maxConstraints)
	for i, v := range n.Values {
		k.index("values", i).label(v)
	}
	if known {
		n.operands(k)
	}
}

// operands checks that the constraint has what its operator compares with.
func (n *Constraint) operands(k check) {
	switch n.Op {
	case OpIn, OpNotIn:
		k.at("values").must(len(n.Values) > 0, "is empty: %q compares with a list", n.Op)
		k.at("value").must(n.Value == "", "is not for %q: write values, a list", n.Op)
		return
	case OpExists:
		k.at("value").must(n.Value == "", "is not for %q, which compares with nothing", n.Op)
	case OpLess, OpMore:
		f, err := strconv.ParseFloat(n.Value, 64)
		k.at("value").must(err == nil && f == f && f-f == 0, "%q is not a number: %q compares numbers", clip(n.Value),
			n.Op)
	case OpAtLeast, OpAtMost:
		k.at("value").must(validVersion(n.Value), "%q is not a version: want numbers between dots, such as \"6.1\"",
			clip(n.Value))
	case OpEqual, OpNotEqual:
	}
	k.at("values").must(len(n.Values) == 0, "is not for %q: use \"in\" or \"not-in\"", n.Op)
}

// validVersion reports whether s begins with numbers between dots; "6.1.0-13-amd64" is one.
func validVersion(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' }

// String returns the constraint as "label.disk = ssd".
func (n Constraint) String() string {
	op := n.Op
	if op == "" {
		op = OpEqual
	}
	switch op {
	case OpIn, OpNotIn:
		return fmt.Sprintf("%s %s (%s)", n.Attribute, op, strings.Join(n.Values, ", "))
	case OpExists:
		return n.Attribute + " exists"
	default:
		return fmt.Sprintf("%s %s %s", n.Attribute, op, n.Value)
	}
}

// Validate returns all faults of the settings as Faults, or nil. Omitted fields count with their defaults.
func (h *Host) Validate() error {
	h = h.completed()
	k := newCheck()
	k.at("name").must(ValidNodeName(h.Name),
		"%q is not the name of a node: want a lower-case host name of at most %d bytes", clip(h.Name), MaxNodeName)
	if h.Domain != "" {
		k.at("domain").name(h.Domain)
	}
	k.at("labels").labels(h.Labels)
	k.taints(h.Taints)
	k.at("reserved_ports").ports(h.ReservedPorts)
	if h.Pool != "" {
		k.at("pool").name(h.Pool)
	}
	if h.Setup != nil {
		h.Setup.validate(k.at("setup"))
	}
	if h.Dial != "" {
		_, err := ParseDialAddress(h.Dial)
		k.at("dial").must(err == nil, "%v", err)
	}
	return k.err()
}
