package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The jobs of examples/import.yaml, gang.yaml and backfill.yaml, in the order of the queue.
const (
	importJob = "import"
	gangJob   = "simulation"
	gangTasks = 3
	shortJob  = "icons"
	longJob   = "archive"
)

// showQueue fills the node and shows the queue behind: a gang with its promise, a short job that starts before it, and
// a long one that does not.
func (d *demo) showQueue(ctx context.Context) (string, error) {
	d.chapter("a job takes most of the free CPU; a gang of %d workers and two other jobs come after it", gangTasks)
	limit := d.limit(30 * time.Second)
	if err := d.submitJobs(ctx, limit); err != nil {
		return "", err
	}
	if err := until(ctx, limit, func() error {
		rows, err := d.berth.queue(ctx)
		if err == nil {
			d.promised, err = promiseOf(rows)
		}
		return err
	}); err != nil {
		return "", err
	}
	if _, err := d.berth.read(ctx, "wait", "job/"+shortJob, "--timeout", limit.String()); err != nil {
		return "", fmt.Errorf("job/%s, which ends before the gang starts, does not go ahead: %w", shortJob, err)
	}
	for _, args := range [][]string{{"queue"}, {"explain", "job/" + gangJob}} {
		if err := d.berth.show(ctx, args...); err != nil {
			return "", err
		}
	}
	if err := d.berth.gangWaits(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("the gang starts by %s, when job/%s reaches its time limit; job/%s ends before that and did "+
		"not wait; job/%s waits, as it might delay the gang",
		d.promised.UTC().Format("15:04:05 UTC"), importJob, shortJob, longJob), nil
}

// submitJobs runs the job that fills the node, and submits the others once it runs.
func (d *demo) submitJobs(ctx context.Context, limit time.Duration) error {
	if err := d.fitJobs(ctx); err != nil {
		return err
	}
	if err := d.berth.show(ctx, "run", "--detach", "import.yaml"); err != nil {
		return err
	}
	_, err := d.berth.read(ctx, "wait", "job/"+importJob, "--for", "running", "--timeout", limit.String())
	if err != nil {
		return err
	}
	for _, name := range []string{"gang.yaml", "backfill.yaml"} {
		if err := d.berth.show(ctx, "run", "--detach", name); err != nil {
			return err
		}
	}
	return nil
}

// queueRow holds the fields of `berth queue -o json` that the demo reads.
type queueRow struct {
	Position int `json:"position"`
	Owner    struct {
		Name string `json:"name"`
	} `json:"owner"`
	Tasks   int    `json:"tasks"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Promise *struct {
		At    time.Time `json:"at"`
		After string    `json:"after"`
	} `json:"promise"`
}

func (r queueRow) String() string {
	return fmt.Sprintf("%d: %d tasks of job/%s: %s", r.Position, r.Tasks, r.Owner.Name, r.Message)
}

func (b *berth) queue(ctx context.Context) ([]queueRow, error) {
	out, err := b.read(ctx, "queue", "-o", "json")
	if err != nil {
		return nil, err
	}
	rows, err := items[queueRow](out)
	if err != nil {
		return nil, fmt.Errorf("read berth queue: %w", err)
	}
	return rows, nil
}

// promiseOf returns the time that the queue promises to the gang. It demands that the gang is first, and behind it only
// the job that would delay it.
func promiseOf(rows []queueRow) (time.Time, error) {
	switch {
	case len(rows) != 2 || rows[0].Owner.Name != gangJob || rows[1].Owner.Name != longJob:
		return time.Time{}, fmt.Errorf("the queue is %v, want job/%s and behind it job/%s", rows, gangJob, longJob)
	case rows[0].Position != 1 || rows[0].Tasks != gangTasks || rows[0].Reason != "gang":
		return time.Time{}, fmt.Errorf("the first row of the queue is %v, want the gang of %d tasks", rows[0],
			gangTasks)
	case rows[0].Promise == nil || rows[0].Promise.At.IsZero() || !strings.Contains(rows[0].Promise.After, importJob):
		return time.Time{}, fmt.Errorf("the gang has no promise after job/%s: %q", importJob, rows[0].Message)
	case rows[1].Position != gangTasks+1 || rows[1].Reason != "backfill" || rows[1].Promise != nil:
		return time.Time{}, fmt.Errorf("job/%s should wait because room is kept for the gang: %v", longJob, rows[1])
	}
	return rows[0].Promise.At, nil
}

// gangWaits demands that no task of the gang has a place, although one of them would find room.
func (b *berth) gangWaits(ctx context.Context) error {
	attempts, err := b.attempts(ctx, gangJob)
	if err != nil {
		return err
	}
	for _, a := range attempts {
		if a.State != "pending" || a.Placed != nil {
			return fmt.Errorf("task %s of the gang is %s, want that the gang waits as a whole", a.ID, a.State)
		}
	}
	return nil
}

// showGang frees the room before the time limit, and demands that the gang starts as a whole and not after the promised
// time.
func (d *demo) showGang(ctx context.Context) (string, error) {
	d.chapter("the first job is cancelled: its room is free earlier than the queue promised")
	if err := d.berth.show(ctx, "stop", "job/"+importJob); err != nil {
		return "", err
	}
	if err := d.berth.show(ctx, "wait", "--timeout", d.limit(time.Minute).String(), "job/"+gangJob,
		"job/"+longJob); err != nil {
		return "", err
	}
	attempts, err := d.berth.attempts(ctx, gangJob)
	if err != nil {
		return "", err
	}
	if err := startedTogether(attempts, d.promised); err != nil {
		return "", err
	}
	lines, err := d.berth.volumeFile("simulation.workers")
	if err != nil {
		return "", err
	}
	met := slices.Sorted(strings.Lines(lines))
	if len(slices.Compact(slices.Clone(met))) != gangTasks || len(met) != gangTasks {
		return "", fmt.Errorf("the workers that met are %q, want %d", met, gangTasks)
	}
	early := d.promised.Sub(*attempts[0].Started).Round(time.Second)
	return fmt.Sprintf("its %d workers started together, %v before the promised time", gangTasks, early), nil
}

// startedTogether demands one attempt of each task of the gang, all placed at one moment and started by the promised
// time.
func startedTogether(attempts []task, promised time.Time) error {
	if len(attempts) != gangTasks {
		return fmt.Errorf("%d attempts of the gang ran, want %d", len(attempts), gangTasks)
	}
	for _, a := range attempts {
		switch {
		case a.State != "succeeded" || a.Placed == nil || a.Started == nil:
			return fmt.Errorf("task %s of the gang is %s, placed %v, started %v", a.ID, a.State, a.Placed, a.Started)
		case !a.Placed.Equal(*attempts[0].Placed):
			return fmt.Errorf("%s was placed at %v and %s at %v, want the same moment", a.ID, a.Placed, attempts[0].ID,
				attempts[0].Placed)
		case a.Started.After(promised):
			return fmt.Errorf("%s started at %v, the queue promised %v", a.ID, a.Started, promised)
		}
	}
	return nil
}

// fitJobs rewrites the manifests that fill a node. They are made for two free CPUs, and the node has more or fewer.
func (d *demo) fitJobs(ctx context.Context) error {
	free, err := d.berth.freeCPU(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{"import.yaml", "gang.yaml", "backfill.yaml"} {
		text, err := os.ReadFile(d.example(name))
		if err != nil {
			return fmt.Errorf("read an example: %w", err)
		}
		if err := os.WriteFile(d.example(name), scaleCPU(text, free), 0o600); err != nil {
			return fmt.Errorf("write an example: %w", err)
		}
	}
	return nil
}

// request finds the CPU of a container, in thousandths, and exampleCPU is the CPU of the node that the examples fill.
var request = regexp.MustCompile(`cpu: ([0-9]+)m`)

const exampleCPU = 2000

// scaleCPU gives the containers of a manifest the same share of the free CPU that they have of two CPUs.
func scaleCPU(text []byte, free int) []byte {
	return request.ReplaceAllFunc(text, func(found []byte) []byte {
		n, _ := strconv.Atoi(string(request.FindSubmatch(found)[1])) // it has digits only
		return fmt.Appendf(nil, "cpu: %dm", n*free/exampleCPU)
	})
}

// freeCPU returns the thousandths of a CPU that no task has reserved on the node.
func (b *berth) freeCPU(ctx context.Context) (int, error) {
	type node struct {
		Total struct {
			CPU string `json:"cpu"`
		} `json:"total"`
		Reserved struct {
			CPU string `json:"cpu"`
		} `json:"reserved"`
	}
	out, err := b.read(ctx, "node", "ls", "-o", "json")
	if err != nil {
		return 0, err
	}
	nodes, err := items[node](out)
	if err != nil || len(nodes) != 1 {
		return 0, fmt.Errorf("berth node ls lists %d nodes, want 1: %w", len(nodes), orWrong(err))
	}
	total, err := milliCPU(nodes[0].Total.CPU)
	if err != nil {
		return 0, err
	}
	reserved, err := milliCPU(nodes[0].Reserved.CPU)
	return total - reserved, err
}

// milliCPU reads an amount of CPU such as 1500m.
func milliCPU(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(text, "m"))
	if err != nil {
		return 0, fmt.Errorf("read the CPU %q of the node: %w", text, err)
	}
	return n, nil
}
