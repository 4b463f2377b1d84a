package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

const (
	// clusters is how many clusters the services spread over.
	clusters = 20
	// changeInterval is the time between two commits of the writer.
	changeInterval = 40 * time.Millisecond
	// One of oneMoves updates moves a task to another node. The others change its health.
	oneMoves = 10
	// eventsKept is how many batches of events stay in the log.
	eventsKept = 2000
	// filledAtOnce is how many records are written in one commit.
	filledAtOnce = 2000
)

func inCluster(service int) string   { return fmt.Sprintf("c%02d", service%clusters) }
func serviceName(service int) string { return fmt.Sprintf("web-%03d", service) }
func nodeName(i int) string          { return fmt.Sprintf("node-%04d", i) }

// fleet is the records of nodes and tasks, and what changes them.
type fleet struct {
	engine  store.Engine
	prefix  store.Prefix
	o       options
	began   time.Time
	random  *rand.Rand
	tasks   []running
	events  []string // ids of the batches in the log, the oldest first
	batches int
	updates atomic.Int64
}

// running is a task with its records.
type running struct {
	desired  cluster.Desired
	observed cluster.Observed
}

func newFleet(engine store.Engine, o options) *fleet {
	return &fleet{
		engine: engine, prefix: store.DefaultPrefix, o: o, began: time.Now().UTC(),
		random: rand.New(rand.NewPCG(1, 1)),
	}
}

var definition = cluster.Ref{Name: "web", Version: 1}

// fill writes all records.
func (f *fleet) fill(ctx context.Context) error {
	var ops []store.Op
	put := func(key string, record any) error {
		value, err := store.Encode(record)
		if err != nil {
			return err
		}
		if ops = append(ops, store.Op{Key: key, Value: value}); len(ops) < filledAtOnce {
			return nil
		}
		return f.flush(ctx, &ops)
	}
	err := put(f.prefix.Definition(definition),
		&cluster.TaskDefinition{Name: definition.Name, Version: definition.Version, Containers: []cluster.Container{{
			Name: "main", Image: "registry.example/web:1",
			Resources: cluster.Resources{CPU: 100, Memory: 64 * cluster.MiB},
		}}})
	for i := 0; i < clusters && err == nil; i++ {
		err = put(f.prefix.Cluster(inCluster(i)), &cluster.Cluster{Name: inCluster(i), Domain: cluster.DefaultDomain})
	}
	for i := 0; i < f.o.nodes && err == nil; i++ {
		err = f.fillNode(i, put)
	}
	each := f.o.tasks / f.o.services
	for i := 0; i < f.o.services && err == nil; i++ {
		err = put(f.prefix.Service(inCluster(i), serviceName(i)), &cluster.Service{
			Cluster: inCluster(i), Name: serviceName(i), Count: each, Definition: definition, Priority: 500,
			OnDisconnect: cluster.DisconnectKeep, Lifespan: cluster.Lifespan{Generation: 1, Created: f.began},
		})
		for k := 0; k < each && err == nil; k++ {
			t := f.place(cluster.ServiceTask(inCluster(i), serviceName(i), 1, k), 1, (i*each+k)%f.o.nodes)
			t.desired.Owner = cluster.OwnerRef{Kind: cluster.KindService, Cluster: inCluster(i), Name: serviceName(i)}
			f.tasks = append(f.tasks, t)
			if err = put(f.prefix.Desired(t.desired.Node, t.desired.Task), &t.desired); err == nil {
				err = put(f.prefix.Observed(t.desired.Node, t.desired.Task), &t.observed)
			}
		}
	}
	if err != nil {
		return err
	}
	return f.flush(ctx, &ops)
}

func (f *fleet) fillNode(i int, put func(string, any) error) error {
	name := nodeName(i)
	if err := put(f.prefix.Node(name), &cluster.Node{
		Name: name, State: cluster.NodeReady, Since: f.began, Domain: cluster.DefaultDomain, Generation: 1, Session: 1,
	}); err != nil {
		return err
	}
	return put(f.prefix.NodeStatus(name),
		&cluster.NodeStatus{Name: name, Session: 1, Registered: f.began, Synced: true, Facts: cluster.Facts{
			Hostname: name, OS: "Debian GNU/Linux 12", Arch: "amd64", Kernel: "6.1.0-28-amd64", CPU: 16_000,
			Memory: 64 * cluster.GiB, Disk: 500 * cluster.GiB,
			Address:   fmt.Sprintf("10.0.%d.%d", i/250, i%250+1),
			Executors: []cluster.ExecutorFact{{Name: "containerd", Version: "1.6.20"}},
			Labels:    cluster.Labels{"rack": fmt.Sprintf("r%d", i%25), "zone": fmt.Sprintf("z%d", i%4)},
			Version:   "0.1.0",
		}})
}

// place makes the records of an attempt that runs.
func (f *fleet) place(id cluster.TaskID, attempt, node int) (t running) {
	now := time.Now().UTC()
	uuid := fmt.Sprintf("0198f000-0000-7000-8000-%s-%d", id, attempt)
	t.desired = cluster.Desired{
		Task: id, Attempt: attempt, UUID: uuid, Node: nodeName(node), Definition: definition,
		Count: f.o.tasks / f.o.services, Priority: 500,
		OnDisconnect: cluster.DisconnectKeep, Placed: now, Plan: 1, Ports: map[string]int{"http": 30_000 + node%1000},
	}
	t.observed = cluster.Observed{
		Task: id, Attempt: attempt, UUID: uuid, Node: nodeName(node), Session: 1, State: cluster.StateRunning,
		Health:  cluster.HealthHealthy,
		Started: now, Containers: []cluster.ContainerStatus{
			{Name: "main", State: cluster.ContainerRunning, Started: now},
		},
	}
	return t
}

// flush commits what was gathered.
func (f *fleet) flush(ctx context.Context, ops *[]store.Op) error {
	if len(*ops) == 0 {
		return nil
	}
	_, err := f.engine.Commit(ctx, []store.Group{{Ops: *ops}})
	*ops = nil
	return err
}

// change updates tasks at the rate until the context ends, each commit with its events.
func (f *fleet) change(ctx context.Context) error {
	tick := time.NewTicker(changeInterval)
	defer tick.Stop()
	began, done := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		due := int(time.Since(began).Seconds()*float64(f.o.rate)) - done
		if due == 0 {
			continue
		}
		if err := f.commit(ctx, due); err != nil {
			return err
		}
		done += due
		f.updates.Add(int64(due))
	}
}

// commit writes that many updates of tasks.
func (f *fleet) commit(ctx context.Context, many int) error {
	f.batches++
	b := cluster.EventBatch{
		ID: fmt.Sprintf("0198f001-0000-7000-8000-%012d", f.batches), At: time.Now().UTC(),
		Incarnation: 1,
	}
	var ops []store.Op
	for range many {
		t := &f.tasks[f.random.IntN(len(f.tasks))]
		var e cluster.Event
		var err error
		if f.random.IntN(oneMoves) == 0 {
			e, err = f.move(t, &ops)
		} else {
			e, err = f.ail(t, &ops)
		}
		if err != nil {
			return err
		}
		b.Events = append(b.Events, e)
	}
	if err := put(&ops, f.prefix.Event(b.ID), &b); err != nil {
		return err
	}
	f.events = append(f.events, b.ID)
	if len(f.events) > eventsKept {
		ops = append(ops, store.Op{Key: f.prefix.Event(f.events[0]), Delete: true})
		f.events = f.events[1:]
	}
	return f.flush(ctx, &ops)
}

// ail makes a healthy task ill, and an ill one healthy.
func (f *fleet) ail(t *running, ops *[]store.Op) (cluster.Event, error) {
	e := cluster.Event{
		Type: "task.unhealthy", Cluster: t.desired.Owner.Cluster, Task: t.desired.Task,
		Node: t.desired.Node, Message: "check http: 3 of 3 failed: status 503",
	}
	t.observed.Health, t.observed.Message = cluster.HealthFailing, e.Message
	if f.random.IntN(2) == 0 {
		t.observed.Health, t.observed.Message = cluster.HealthHealthy, ""
		t.observed.Restarts++
		e.Type, e.Message = "task.healthy", ""
	}
	return e, put(ops, f.prefix.Observed(t.desired.Node, t.desired.Task), &t.observed)
}

// move gives a task another attempt on another node.
func (f *fleet) move(t *running, ops *[]store.Op) (cluster.Event, error) {
	old := t.desired
	set(ops, store.Op{Key: f.prefix.Desired(old.Node, old.Task), Delete: true})
	set(ops, store.Op{Key: f.prefix.Observed(old.Node, old.Task), Delete: true})
	*t = f.place(old.Task, old.Attempt+1, f.random.IntN(f.o.nodes))
	t.desired.Owner = old.Owner
	e := cluster.Event{
		Type: "task.placed", Cluster: old.Owner.Cluster, Task: old.Task, Node: t.desired.Node,
		Message: "attempt " + fmt.Sprint(t.desired.Attempt),
	}
	if err := put(ops, f.prefix.Desired(t.desired.Node, old.Task), &t.desired); err != nil {
		return e, err
	}
	return e, put(ops, f.prefix.Observed(t.desired.Node, old.Task), &t.observed)
}

// put adds the write of a record.
func put(ops *[]store.Op, key string, record any) error {
	value, err := store.Encode(record)
	if err != nil {
		return err
	}
	set(ops, store.Op{Key: key, Value: value})
	return nil
}

// set adds an operation. A commit writes a record once: the last operation is what counts.
func set(ops *[]store.Op, op store.Op) {
	for i := range *ops {
		if (*ops)[i].Key == op.Key {
			(*ops)[i] = op
			return
		}
	}
	*ops = append(*ops, op)
}
