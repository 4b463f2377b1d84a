package scheduler_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// TestStories runs the scripts of testdata/stories. A script is a list of commands, one a line. The expected answer of
// a command follows a line "----" and ends at an empty line. With -update the answers are rewritten.
//
//	node NAME key=value…         a node joins or changes; keys: state cordon drain arch kernel executors cpu memory
//	                             disk reserved pool taints gpus images label.<key>; the defaults are ready, 4 CPUs,
//	                             8 GiB, 100 GiB
//	gone NAME                    a node is removed
//	quota key=value…             the quota of a cluster is set; keys: cpu memory tasks jobs gpu cluster (default c)
//	                             lend borrow-cpu borrow-tasks borrow-gpu
//	held UUID TASK NODE key=…    an attempt is reserved; keys: definition cpu memory disk ports
//	                             limit started cluster priority
//	ended UUID                   an attempt has ended, and holds its room still
//	release UUID                 an attempt is released
//	clock DURATION               sets the time, from the start of the story; it starts at 0s
//	tasks OWNER key=value…       tasks of cluster c start to wait; OWNER is SERVICE, or JOB/STEP; keys: count
//	                             first generation definition restarted attempt priority cpu memory disk ports
//	                             strategy apart where avoid failed only daemon since image images gpu gang all labels
//	                             pool tolerates wants evenly distinct near must-near away must-away concurrency
//	                             queue limit cluster
//	withdraw OWNER               its tasks no longer wait
//	schedule                     decides; answers with the plan
//	apply                        reserves the placements of the last schedule; other tasks still wait
//	preempt                      answers with the tasks that end for waiting tasks, and promises these the room
//	leaves UUID                  an attempt is ending
//	explain TASK                 answers with each node's verdict on a waiting task
//
// Lists are joined by ","; a value with spaces is in "".
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/stories/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runStory(t, file) })
	}
}

var update = flag.Bool("update", false, "rewrite the answers of the stories")

func runStory(t *testing.T, file string) {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &story{fleet: scheduler.NewFleet()}
	var out strings.Builder
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		fmt.Fprintln(&out, lines[i])
		fields := split(lines[i])
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		got, err := s.run(fields[0], fields[1:])
		if err != nil {
			t.Fatalf("%s:%d: %s: %v", file, i+1, lines[i], err)
		}
		at := i + 1
		var want string
		if at < len(lines) && lines[at] == "----" {
			for i = at; i+1 < len(lines) && lines[i+1] != ""; i++ {
				want += lines[i+1] + "\n"
			}
		}
		if got != want && !*update {
			t.Errorf("%s:%d: %s (-want +got):\n%s", file, at, lines[at-1], cmp.Diff(want, got))
		}
		if got != "" {
			fmt.Fprintf(&out, "----\n%s", got)
			if i+1 < len(lines) && lines[i+1] != "" {
				fmt.Fprintln(&out)
			}
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// split cuts a line at spaces outside of "".
func split(line string) (fields []string) {
	inside := false
	for _, f := range strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			inside = !inside
		}
		return r == ' ' && !inside
	}) {
		fields = append(fields, strings.ReplaceAll(f, `"`, ""))
	}
	return fields
}

// story is the state between the commands of a script.
type story struct {
	fleet   *scheduler.Fleet
	pending []cluster.Pending
	last    scheduler.Result
	clock   time.Duration
	leaving map[string]bool // by UUID
}

func (s *story) options() scheduler.Options { return scheduler.Options{Now: epoch().Add(s.clock)} }

func (s *story) run(command string, args []string) (answer string, err error) {
	if len(args) == 0 && command != "schedule" && command != "apply" && command != "preempt" {
		return "", errors.New("argument missing")
	}
	switch command {
	case "node":
		n, err := readNode(args)
		s.fleet.SetNode(n)
		return "", err
	case "quota":
		return "", s.setQuota(args)
	case "clock":
		s.clock, err = time.ParseDuration(args[0])
		return "", err
	case "gone":
		s.fleet.RemoveNode(args[0])
	case "held":
		return "", s.hold(args)
	case "ended":
		s.fleet.End(args[0])
	case "release":
		s.fleet.Release(args[0])
	case "tasks":
		more, err := readTasks(args)
		s.pending = append(s.pending, more...)
		return "", err
	case "withdraw":
		s.pending = slices.DeleteFunc(s.pending, func(p cluster.Pending) bool { return p.Owner.Name == args[0] })
	case "schedule":
		s.last = scheduler.Schedule(s.fleet, s.pending, s.options())
		return formatPlan(s.last), nil
	case "apply":
		s.pending = apply(s.fleet, s.pending, s.last)
		s.last = scheduler.Result{}
	case "preempt":
		return s.preempt(), nil
	case "leaves":
		if s.leaving == nil {
			s.leaving = map[string]bool{}
		}
		s.leaving[args[0]] = true
	case "explain":
		return s.explain(cluster.TaskID(args[0]))
	default:
		return "", errors.New("unknown command")
	}
	return "", nil
}

// formatPlan writes a plan, one task a line. Tasks that wait for the same reason share a line.
func formatPlan(res scheduler.Result) string {
	var b strings.Builder
	for _, p := range res.Placements {
		fmt.Fprintf(&b, "%s -> %s", short(p.Task), p.Node)
		for _, name := range slices.Sorted(maps.Keys(p.Ports)) {
			fmt.Fprintf(&b, " %s=%d", name, p.Ports[name])
		}
		for _, d := range p.Devices {
			fmt.Fprintf(&b, " %s", d.ID)
			if d.Share < cluster.WholeDevice {
				fmt.Fprintf(&b, "/%d", d.Share)
			}
		}
		b.WriteString("\n")
	}
	for i := 0; i < len(res.Waiting); {
		var tasks []string
		w := res.Waiting[i]
		for ; i < len(res.Waiting) && res.Waiting[i].Sentence == w.Sentence; i++ {
			tasks = append(tasks, short(res.Waiting[i].Task))
		}
		fmt.Fprintf(&b, "%s waits: %s\n", strings.Join(tasks, " "), w.Sentence)
	}
	if b.Len() == 0 {
		return "nothing to do\n"
	}
	return b.String()
}

// preempt has every attempt as a possible victim.
func (s *story) preempt() string {
	in := scheduler.PreemptInput{Fleet: s.fleet, Waiting: s.pending, Least: cluster.PreemptionGap}
	for r := range s.fleet.Held {
		parts, _ := r.Task.Parts()
		v := scheduler.Victim{
			UUID: r.UUID, Priority: r.Priority, Leaving: s.leaving[r.UUID],
			Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: parts.Cluster, Name: parts.Owner},
		}
		if parts.Step != "" {
			v.Owner.Kind = cluster.KindJob
		}
		in.Victims = append(in.Victims, v)
	}
	for i := range s.pending {
		s.pending[i].Promised = ""
	}
	var b strings.Builder
	for _, found := range scheduler.Preempt(in, s.options()) {
		s.pending[found.Pending].Promised = found.Node
		fmt.Fprintf(&b, "%s: %s", short(found.Task), found.Message)
		for _, uuid := range found.Victims {
			fmt.Fprintf(&b, " %s", uuid)
		}
		b.WriteString("\n")
	}
	if b.Len() == 0 {
		return "nothing ends\n"
	}
	return b.String()
}

// short returns a task's id without the cluster c.
func short(id cluster.TaskID) string { return strings.TrimPrefix(string(id), "c.") }

func (s *story) explain(id cluster.TaskID) (string, error) {
	i := slices.IndexFunc(s.pending, func(p cluster.Pending) bool { return short(p.Task) == string(id) })
	if i < 0 {
		return "", errors.New("no such task waits")
	}
	var b strings.Builder
	for _, v := range scheduler.Explain(s.fleet, s.pending[i], s.options()) {
		says := "fits"
		if v.Refusal != nil {
			says = scheduler.Sentence([]cluster.RefusalCount{{Refusal: *v.Refusal}})
		}
		for _, p := range v.Parts {
			if p.Name != "fill" && p.Name != "tasks" { // the parts that scripts are about
				says += fmt.Sprintf(", %s %+d", p.Name, p.Points)
			}
		}
		if v.Wins {
			says += ": wins"
		}
		fmt.Fprintf(&b, "%s: %s\n", v.Node, says)
	}
	return b.String(), nil
}

func (s *story) hold(args []string) error {
	if len(args) < 3 {
		return errors.New("want UUID TASK NODE")
	}
	r := scheduler.Reservation{
		UUID: args[0], Task: cluster.TaskID(clusterOf(args) + "." + args[1]), Node: args[2],
		Priority: cluster.DefaultPriority,
	}
	parts, _ := r.Task.Parts()
	r.Batch = parts.Step != ""
	for key, value := range pairs(args[3:]) {
		switch key {
		case "limit":
			r.Limit, _ = time.ParseDuration(value)
			continue
		case "started":
			started, _ := time.ParseDuration(value)
			r.Started = epoch().Add(started)
			continue
		case "ports":
			r.Ports = numbers(value)
			continue
		case "priority":
			r.Priority = numbers(value)[0]
			continue
		case "cluster":
			continue
		case "definition":
			definition, err := cluster.ParseRef(value)
			if err != nil {
				return err
			}
			r.Definition = definition
			continue
		}
		if err := readDemand(&r.Demand, key, value); err != nil {
			return err
		}
	}
	s.fleet.Reserve(r)
	return nil
}

// clusterOf returns the cluster that words name, or c.
func clusterOf(words []string) string {
	for _, word := range words {
		if name, found := strings.CutPrefix(word, "cluster="); found {
			return name
		}
	}
	return "c"
}

// pairs splits "key=value" words at the first "=".
func pairs(words []string) func(yield func(key, value string) bool) {
	return func(yield func(key, value string) bool) {
		for _, w := range words {
			if key, value, _ := strings.Cut(w, "="); !yield(key, value) {
				return
			}
		}
	}
}

func numbers(list string) (ns []int) {
	for s := range strings.SplitSeq(list, ",") {
		n, _ := strconv.Atoi(s)
		ns = append(ns, n)
	}
	return ns
}

func readDemand(d *cluster.Demand, key, value string) (err error) {
	switch key {
	case "cpu":
		d.CPU, err = cluster.ParseMilliCPU(value)
	case "memory":
		d.Memory, err = cluster.ParseBytes(value)
	case "disk":
		d.Disk, err = cluster.ParseBytes(value)
	default:
		return fmt.Errorf("unknown key %q", key)
	}
	return err
}

func readNode(args []string) (n scheduler.Node, err error) {
	n = scheduler.Node{
		Name: args[0], State: cluster.NodeReady, Arch: "amd64", OS: "linux",
		Executors: []string{"containerd", "process"},
		Labels:    cluster.Labels{},
		Capacity:  cluster.Demand{CPU: 4000, Memory: 8 * cluster.GiB, Disk: 100 * cluster.GiB},
	}
	for key, value := range pairs(args[1:]) {
		label, isLabel := strings.CutPrefix(key, "label.")
		switch {
		case isLabel:
			n.Labels[label] = value
		case key == "state":
			n.State = cluster.NodeState(value)
		case key == "cordon":
			n.Cordon = true
		case key == "drain":
			n.Cordon, n.Drain = true, true
		case key == "arch":
			n.Arch = value
		case key == "kernel":
			n.Kernel = value
		case key == "executors":
			n.Executors = strings.Split(value, ",")
		case key == "pool":
			n.Pool = value
		case key == "taints":
			n.Taints = readTaints(value)
		case key == "gpus":
			n.Devices = readDevices(value)
		case key == "images":
			n.Images = strings.Split(value, ",")
		case key == "reserved":
			n.ReservedPorts = reserved(value)
		default:
			err = errors.Join(err, readDemand(&n.Capacity, key, value))
		}
	}
	return n, err
}

// readTaints reads KEY:EFFECT, joined by ",".
func readTaints(list string) (taints []cluster.Taint) {
	for part := range strings.SplitSeq(list, ",") {
		key, effect, _ := strings.Cut(part, ":")
		taints = append(taints, cluster.Taint{Key: key, Effect: cluster.TaintEffect(effect)})
	}
	return taints
}

// readDevices reads a list of models.
func readDevices(list string) (devices []cluster.Device) {
	for i, model := range strings.Split(list, ",") {
		devices = append(devices, cluster.Device{ID: fmt.Sprint("gpu", i), Type: "gpu", Model: model})
	}
	return devices
}

func readLabels(value string) cluster.Labels {
	key, label, _ := strings.Cut(value, ":")
	return cluster.Labels{key: label}
}

// reserved reads a list of ports and ranges: "80,30000-30010".
func reserved(list string) (ports []int) {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		for p := numbers(first)[0]; p <= numbers(last)[0]; p++ {
			ports = append(ports, p)
		}
	}
	return ports
}

func readTasks(args []string) (pending []cluster.Pending, err error) {
	owner, step, isJob := strings.Cut(args[0], "/")
	name := clusterOf(args)
	p := cluster.Pending{
		Owner:   cluster.OwnerRef{Kind: cluster.KindService, Cluster: name, Name: owner},
		Attempt: 1, Priority: cluster.DefaultPriority, Since: epoch(),
	}
	if isJob {
		p.Owner.Kind = cluster.KindJob
	}
	count, first, generation := 1, 0, 1
	for key, value := range pairs(args[1:]) {
		switch key {
		case "count":
			count, err = strconv.Atoi(value)
		case "first":
			first, err = strconv.Atoi(value)
		case "generation":
			generation, err = strconv.Atoi(value)
		case "cluster":
		default:
			err = readPending(&p, key, value)
		}
		if err != nil {
			return nil, err
		}
	}
	for i := range count {
		p.Task = cluster.ServiceTask(name, owner, uint64(generation), first+i)
		if isJob {
			p.Task = cluster.JobTask(name, owner, uint64(generation), step, first+i)
		}
		pending = append(pending, p)
	}
	return pending, nil
}

func (s *story) setQuota(args []string) (err error) {
	q, borrow := &cluster.Quota{}, &cluster.QuotaBorrow{}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "cpu":
			q.CPU = cluster.MilliCPU(1000 * numbers(value)[0])
		case "memory":
			q.Memory, err = cluster.ParseBytes(value)
		case "tasks":
			q.Tasks = numbers(value)[0]
		case "jobs":
			q.Jobs = numbers(value)[0]
		case "gpu":
			q.Devices = map[string]int{"gpu": numbers(value)[0]}
		case "borrow-cpu":
			borrow.CPU, q.Borrow = cluster.MilliCPU(1000*numbers(value)[0]), borrow
		case "borrow-tasks":
			borrow.Tasks, q.Borrow = numbers(value)[0], borrow
		case "borrow-gpu":
			borrow.Devices, q.Borrow = map[string]int{"gpu": numbers(value)[0]}, borrow
		case "lend":
			lends := value == "true"
			q.Lend = &lends
		case "cluster":
		default:
			err = fmt.Errorf("unknown key %q", key)
		}
		if err != nil {
			return err
		}
	}
	s.fleet.Limits.SetQuota(clusterOf(args), q)
	return nil
}

func readPending(p *cluster.Pending, key, value string) (err error) {
	switch key {
	case "attempt":
		p.Attempt, err = strconv.Atoi(value)
	case "definition":
		p.Definition, err = cluster.ParseRef(value)
	case "restarted":
		p.Restarted, err = strconv.ParseUint(value, 10, 64)
	case "failed":
		p.PenalizedNodes = strings.Split(value, ",")
	case "only":
		p.OnlyNode = value
	case "daemon":
		p.Daemon = true
	case "gang":
		p.Gang, p.GangSize = p.Owner.Name, numbers(value)[0]
	case "concurrency": // GROUP:LIMIT
		group, limit, _ := strings.Cut(value, ":")
		p.Concurrency = &cluster.Concurrency{Group: group, Limit: numbers(limit)[0]}
	case "queue":
		p.Queue = cluster.QueuePolicy(value)
	case "limit":
		limit, failed := time.ParseDuration(value)
		p.TimeLimit, err = cluster.Duration(limit), failed
	case "all":
		p.Count = numbers(value)[0]
	case "images":
		p.Images = strings.Split(value, ",")
	case "gpu": // COUNT, or SHARE in thousandths with a "/" before it; then ":" and a model
		amount, model, named := strings.Cut(value, ":")
		r := cluster.DeviceRequest{}
		if share, part := strings.CutPrefix(amount, "/"); part {
			r.Share = numbers(share)[0]
		} else {
			r.Count = numbers(amount)[0]
		}
		if named {
			r.Models = []string{model}
		}
		p.Devices = append(p.Devices, r)
	case "labels":
		p.Labels = readLabels(value)
	default:
		return readPreference(p, key, value)
	}
	return err
}

// readPreference reads the rest of a placement.
func readPreference(p *cluster.Pending, key, value string) (err error) {
	switch key {
	case "pool":
		p.Placement.Pool = value
	case "tolerates":
		for _, t := range readTaints(value) {
			p.Placement.Tolerations = append(p.Placement.Tolerations,
				cluster.Toleration{Key: t.Key, Value: t.Value, Effect: t.Effect})
		}
	case "wants":
		p.Placement.Affinities = append(p.Placement.Affinities, cluster.Affinity{Constraint: readConstraint(value)})
	case "evenly":
		attribute, skew, _ := strings.Cut(value, "/")
		s := cluster.Spread{Attribute: attribute}
		if skew != "" {
			s.MaxSkew = numbers(skew)[0]
		}
		p.Placement.Spread = append(p.Placement.Spread, s)
	case "distinct":
		p.Placement.Distinct = append(p.Placement.Distinct, cluster.Distinct{Attribute: value})
	case "near", "must-near", "away", "must-away": // LABEL:VALUE, or with "@" an attribute behind it
		labels, attribute, _ := strings.Cut(value, "@")
		p.Placement.Relations = append(p.Placement.Relations, cluster.Relation{
			Labels: readLabels(labels), Attribute: attribute, Away: strings.HasSuffix(key, "away"),
			Required: strings.HasPrefix(key, "must"),
		})
	case "priority":
		p.Priority, err = strconv.Atoi(value)
	case "ports":
		for port := range strings.SplitSeq(value, ",") {
			name, number, _ := strings.Cut(port, ":")
			p.Ports = append(p.Ports, cluster.Port{Name: name, Port: numbers(number)[0]})
		}
	case "strategy":
		p.Placement.Strategy = cluster.Strategy(value)
	case "apart":
		p.Placement.AntiAffinity = cluster.AntiAffinity(value)
	case "where":
		p.Placement.Constraints = append(p.Placement.Constraints, readConstraint(value))
	case "avoid":
		p.ExcludedNodes = strings.Split(value, ",")
	case "since":
		var d time.Duration
		d, err = time.ParseDuration(value)
		p.Since = epoch().Add(d)
	case "image":
		p.NeedsImage = true
	default:
		err = readDemand(&p.Demand, key, value)
	}
	return err
}

// readConstraint reads the format of feasibility.Text.
func readConstraint(text string) cluster.Constraint {
	f := strings.SplitN(text, " ", 3)
	c := cluster.Constraint{Attribute: f[0], Op: cluster.ConstraintOp(f[1])}
	switch c.Op {
	case cluster.OpExists:
	case cluster.OpIn, cluster.OpNotIn:
		c.Values = strings.Split(strings.Trim(f[2], "()"), ", ")
	default:
		c.Value = f[2]
	}
	return c
}
