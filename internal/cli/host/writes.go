package host

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/manifest"
)

// createCommand is `berth host create` and `berth host replace`.
type createCommand struct {
	*target
	file string
}

func newCreateCommand(t *target) *cobra.Command {
	c := &createCommand{target: t}
	cmd := &cobra.Command{
		Use: "create NAME -f FILE", Short: "Create a task on this machine, without starting it",
		Long: "Create a task on this machine from the task definition in a manifest, without starting it. The task\n" +
			"has its room from now on, until it is removed. The same command again changes nothing.",
		Args: session.Arguments(1, 1, "the name of the new task, such as web"),
		RunE: t.withHost(func(ctx context.Context, h *client.Host, args []string) error {
			d, err := c.read()
			if err != nil {
				return err
			}
			if err := h.Create(ctx, args[0], d); err != nil {
				return err
			}
			c.Messagef("Created %s; 'berth host start %s' starts it.", args[0], args[0])
			return nil
		}),
	}
	c.addFlag(cmd)
	return cmd
}

func newReplaceCommand(t *target) *cobra.Command {
	c := &createCommand{target: t}
	cmd := &cobra.Command{
		Use: "replace OLD NEW -f FILE", Short: "Replace a task of this machine by a new one",
		Long: "Create and start the task NEW from the task definition in a manifest. Once NEW is healthy, OLD is\n" +
			"deleted. If NEW fails, it is stopped, and OLD stays as it is. The machine needs room for both.",
		Args: session.Arguments(2, 2, "the old task and the name of the new one, such as web-1 web-2"),
		RunE: t.withHost(func(ctx context.Context, h *client.Host, args []string) error {
			d, err := c.read()
			if err != nil {
				return err
			}
			if err := h.Replace(ctx, args[1], args[0], d); err != nil {
				return onMissing(err)
			}
			c.Messagef("Started %s, which replaces %s once it is healthy; 'berth host events' shows it.", args[1],
				args[0])
			return nil
		}),
	}
	c.addFlag(cmd)
	return cmd
}

func (c *createCommand) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&c.file, "file", "f", "", "`FILE` with the manifest of a task definition; - for the input")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag exists
	}
}

// read returns the only task definition in the file.
func (c *createCommand) read() (api.InlineDefinition, error) {
	objects, err := manifest.Read(c.Stdin, c.file)
	if err != nil {
		return api.InlineDefinition{}, err
	}
	if len(objects) != 1 {
		return api.InlineDefinition{}, fmt.Errorf("%s holds %d objects: want one of the kind %s", c.file, len(objects),
			cluster.KindTaskDefinition)
	}
	d, ok := objects[0].Value.(*cluster.TaskDefinition)
	if !ok {
		return api.InlineDefinition{}, fmt.Errorf("%s holds a %s: want a %s, which says what one task runs", c.file,
			objects[0].Kind, cluster.KindTaskDefinition)
	}
	inline := api.InlineDefinition{TaskDefinition: *d}
	inline.Name, inline.Version = "", 0 // the task has the name
	return inline, nil
}

func newStartCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "start TASK", Short: "Start a task of this machine",
		Long: "Start a task that was made with 'berth host create'.",
		Args: session.Arguments(1, 1, "a task, such as web"), ValidArgsFunction: t.completeTasks(1),
		RunE: t.withHost(func(ctx context.Context, h *client.Host, args []string) error {
			if err := h.Start(ctx, args[0]); err != nil {
				return onMissing(err)
			}
			t.Messagef("Starting %s.", args[0])
			return nil
		}),
	}
}

func newStopCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "stop TASK", Short: "Stop a task of this machine, which keeps its room",
		Long: "Stop a task that was made with 'berth host create': TERM, and KILL after its grace. It keeps its\n" +
			"CPU, memory and fixed ports until it is removed.",
		Args: session.Arguments(1, 1, "a task, such as web"), ValidArgsFunction: t.completeTasks(1),
		RunE: t.withHost(func(ctx context.Context, h *client.Host, args []string) error {
			if err := h.Stop(ctx, args[0]); err != nil {
				return onMissing(err)
			}
			t.Messagef("Stopping %s.", args[0])
			return nil
		}),
	}
}

func newRemoveCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "rm TASK...", Aliases: []string{"delete"}, Short: "Remove stopped tasks from this machine",
		Long: "Remove stopped tasks that were made with 'berth host create', and free their room.",
		Args: session.Arguments(1, -1, "a task, such as web"), ValidArgsFunction: t.completeTasks(-1),
		RunE: t.withHost(func(ctx context.Context, h *client.Host, args []string) error {
			for _, name := range args {
				if err := h.Delete(ctx, name); err != nil {
					return onMissing(err)
				}
				t.Messagef("Removed %s.", name)
			}
			return nil
		}),
	}
}
