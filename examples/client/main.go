// Command client shows how a program of another module uses Berth: it runs a job, watches its tasks until the job has
// ended, and prints the output of each task.
//
//	go run . -addr unix:///run/berth/api.sock -tasks 3 -- /bin/sh -c 'echo "task $BERTH_INDEX of $BERTH_COUNT"'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("client", flag.ContinueOnError)
	addr := flags.String("addr", os.Getenv("BERTH_ADDR"),
		"address of a server: unix:///path, http://host:port or https://host:port")
	token := flags.String("token", os.Getenv("BERTH_TOKEN"), "access token; none over a unix socket")
	name := flags.String("name", "from-a-program", "name of the job and of its task definition")
	image := flags.String("image", "", "image of the container; without one the command is a program of the node")
	tasks := flags.Int("tasks", 1, "number of tasks")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("name the command that the tasks run, after --")
	}
	c, err := client.New(client.Config{Addr: *addr, Token: *token, Agent: "berth-example"})
	if err != nil {
		return err
	}
	defer c.Close()

	if err := submit(ctx, c, *name, *image, *tasks, flags.Args()); err != nil {
		return err
	}
	ended, err := watch(ctx, c, *name, out)
	if err != nil {
		return err
	}
	failed := 0
	for _, t := range ended {
		if t.State != api.StateSucceeded {
			failed++
		}
		if err := read(ctx, c, t.ID, out); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d tasks did not succeed", failed, len(ended))
	}
	return nil
}

// submit writes a task definition and a job of it, both or none. The same request again changes nothing.
func submit(ctx context.Context, c *client.Client, name, image string, tasks int, command []string) error {
	definition := api.TaskDefinition{Name: name, Version: 1, Containers: []api.Container{{
		Name: "main", Image: image, Command: command,
		Resources: api.Resources{CPU: 10, Memory: 16 * api.MiB},
	}}}
	job := api.Job{Name: name, Cluster: api.DefaultCluster, Steps: []api.Step{{
		Name: "main", Definition: api.Ref{Name: name, Version: 1}, Count: tasks,
		TimeLimit: api.Duration(10 * time.Minute),
	}}}
	var request api.ApplyRequest
	for _, o := range []struct {
		kind api.Kind
		spec any
	}{{api.KindTaskDefinition, definition}, {api.KindJob, job}} {
		spec, err := json.Marshal(o.spec)
		if err != nil {
			return err
		}
		request.Objects = append(request.Objects, api.Object{Kind: o.kind, Spec: spec})
	}
	_, err := c.Apply(ctx, request)
	if refused, ok := errors.AsType[*client.Error](err); ok { // a refusal names every field that is wrong
		for _, f := range refused.Faults {
			fmt.Fprintf(os.Stderr, "%s: %s\n", f.Path, f.Message)
		}
	}
	return err
}

// watch prints each change of the job's tasks until all of them have ended. It requests the list again only after a
// change.
func watch(ctx context.Context, c *client.Client, job string, out io.Writer) ([]api.TaskView, error) {
	shown := map[api.TaskID]api.State{}
	var o client.ListOptions
	for {
		page, err := c.Tasks(ctx, client.TaskFilter{Cluster: api.DefaultCluster, Job: job}, o)
		if err != nil {
			return nil, err
		}
		running := 0
		for _, t := range page.Items {
			if shown[t.ID] != t.State {
				fmt.Fprintf(out, "%s: %s\n", t.ID, t.State)
				shown[t.ID] = t.State
			}
			if !t.State.Terminal() {
				running++
			}
		}
		if len(page.Items) > 0 && running == 0 {
			return page.Items, nil
		}
		o = client.ListOptions{Index: page.Index, Wait: time.Minute}
	}
}

// read prints the output of a task.
func read(ctx context.Context, c *client.Client, id api.TaskID, out io.Writer) error {
	for line, err := range c.Logs(ctx, id, client.LogOptions{Tail: -1}) {
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s | %s\n", id, line.Text)
	}
	return nil
}
