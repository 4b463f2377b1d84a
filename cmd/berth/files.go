package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/manifest"
)

const filesHelp = `FILE is a manifest, a folder of manifests (*.yaml, *.yml, *.json), or - for standard input.`

func (a *app) newValidateCommand() *cobra.Command {
	var schema bool
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check manifests without a server",
		Long: "Check manifests without a server, and tell everything that is wrong with its line and column.\n\n" +
			filesHelp +
			"\nWith --schema instead of files it prints the JSON Schema of manifests, for editors.",
		Args: func(cmd *cobra.Command, args []string) error {
			if schema {
				return arguments(0, 0, "")(cmd, args)
			}
			return arguments(1, -1, "a manifest: a file, a folder or - for standard input")(cmd, args)
		},
		ValidArgsFunction: completeManifests,
		RunE: func(_ *cobra.Command, args []string) error {
			if schema {
				_, err := io.WriteString(a.stdout, manifest.Schema())
				return err
			}
			objects, err := a.readManifests(args)
			if _, faulty := errors.AsType[manifest.Faults](err); faulty {
				return &exitError{exitNo, err}
			}
			if err != nil {
				return err
			}
			a.tell("%s: all well", count(len(objects), "object"))
			return nil
		},
	}
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema of manifests")
	return cmd
}

func (a *app) newPlanCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "plan FILE...",
		Short: "Show what run would change; exit code 1 if there is something",
		Long: "Show what run would change. Exit code 0: nothing to do; 1: changes; 2: an error.\n\n" +
			filesHelp,
		Args:              arguments(1, -1, "a manifest: a file, a folder or - for standard input"),
		ValidArgsFunction: completeManifests,
		RunE: func(cmd *cobra.Command, args []string) error {
			reply, err := a.apply(cmd.Context(), args, true)
			if err != nil {
				return err
			}
			if a.data() {
				err = a.printData(reply)
			} else {
				err = a.printPlan(reply)
			}
			if err == nil && slices.ContainsFunc(reply.Changes, func(c api.Change) bool {
				return c.Action != api.ActionNone
			}) {
				return &exitError{code: exitNo}
			}
			return err
		},
	}
}

// readManifests reads files; an error counts the faults before it tells them.
func (a *app) readManifests(files []string) ([]manifest.Object, error) {
	objects, err := manifest.Read(a.stdin, files...)
	// each in a line of its own, files that cannot be read among them
	if _, ok := errors.AsType[manifest.Faults](err); ok {
		return nil, fmt.Errorf("%s in the manifest\n%w", count(strings.Count(err.Error(), "\n")+1, "fault"), err)
	}
	return objects, err
}

// apply sends the objects of files to the server. What the server finds wrong is told with the
// place in the files.
func (a *app) apply(ctx context.Context, files []string, dryRun bool) (api.ApplyReply, error) {
	objects, err := a.readManifests(files)
	if err != nil {
		return api.ApplyReply{}, err
	}
	c, err := a.connect()
	if err != nil {
		return api.ApplyReply{}, err
	}
	return a.send(ctx, c, objects, dryRun)
}

// send sends objects that were read to the server.
func (a *app) send(ctx context.Context, c *client.Client, objects []manifest.Object, dryRun bool) (api.ApplyReply,
	error,
) {
	req := api.ApplyRequest{DryRun: dryRun}
	for _, o := range objects {
		spec, err := json.Marshal(o.Value)
		if err != nil {
			return api.ApplyReply{}, fmt.Errorf("encode %s %s: %w", o.Kind, o.Name(), err)
		}
		req.Objects = append(req.Objects, api.Object{Kind: o.Kind, Spec: spec})
	}
	reply, err := c.Apply(ctx, req)
	if refused, ok := errors.AsType[*client.Error](err); ok && len(refused.Faults) > 0 {
		return reply, fmt.Errorf("%s\n%w", refusalLine(refused), places(objects, refused.Faults))
	}
	return reply, err
}

func refusalLine(e *client.Error) string {
	if e.Detail != "" {
		return e.Detail
	}
	return "the server refused the manifest"
}

// objectPath is how the server names a field of an apply.
var objectPath = regexp.MustCompile(`^objects\[(\d+)\]\.?(?:spec\.?)?`)

// places finds the places in the files that the server's faults are about.
func places(objects []manifest.Object, faults []cluster.Fault) manifest.Faults {
	var placed manifest.Faults
	for _, f := range faults {
		at, path := manifest.Position{File: "server"}, f.Path
		if m := objectPath.FindStringSubmatch(f.Path); m != nil {
			if i, err := strconv.Atoi(m[1]); err == nil && i < len(objects) {
				path = strings.TrimPrefix(f.Path, m[0])
				at = objects[i].At(path)
			}
		}
		placed = append(placed, manifest.Fault{Position: at, Path: path, Message: f.Message})
	}
	return placed
}

// printPlan prints what an apply would change.
func (a *app) printPlan(reply api.ApplyReply) error {
	var b strings.Builder
	counts := map[api.Action]int{}
	color := a.colors(a.stdout)
	paint := func(text, with string) string {
		if !color {
			return text
		}
		return colored(text, with)
	}
	for _, c := range reply.Changes {
		counts[c.Action]++
		label := changeName(c)
		switch c.Action {
		case api.ActionCreate:
			fmt.Fprintf(&b, "%s\n", paint("+ create  "+label, green))
		case api.ActionUpdate:
			fmt.Fprintf(&b, "%s\n", paint("~ update  "+label, yellow))
		case api.ActionNone:
			if a.output == outputWide {
				fmt.Fprintf(&b, "= keep    %s\n", label)
			}
			continue
		}
		if c.Action == api.ActionUpdate {
			for _, f := range c.Fields {
				fmt.Fprintf(&b, "    %s: %s\n", f.Path, difference(f))
			}
		}
		if c.Effect != "" {
			fmt.Fprintf(&b, "    %s\n", c.Effect)
		}
	}
	if counts[api.ActionCreate]+counts[api.ActionUpdate] == 0 {
		fmt.Fprintf(&b, "Nothing to do: %s as the manifest says.\n", are(counts[api.ActionNone]))
	} else {
		fmt.Fprintf(&b, "%d to create, %d to update, %d unchanged.\n",
			counts[api.ActionCreate], counts[api.ActionUpdate], counts[api.ActionNone])
	}
	_, err := a.stdout.Write([]byte(b.String()))
	return err
}

func are(n int) string {
	if n == 1 {
		return "1 object is"
	}
	return strconv.Itoa(n) + " objects are"
}

// difference shows both values of a field. Of long ones it shows what differs, with a little of what stands before it.
func difference(f api.FieldChange) string {
	const most, before = 80, 20
	old, now := plainJSON(f.Old), plainJSON(f.New)
	switch {
	case f.Old == "":
		return "set to " + cut(now, most)
	case f.New == "":
		return cut(old, most) + " is removed"
	}
	if x, y := []rune(old), []rune(now); max(len(x), len(y)) > most {
		same := 0
		for same < min(len(x), len(y)) && x[same] == y[same] {
			same++
		}
		if skip := same - before; skip > 0 {
			old, now = "…"+string(x[skip:]), "…"+string(y[skip:])
		}
	}
	return cut(old, most) + " → " + cut(now, most)
}

// plainJSON writes signs as they are that JSON for web pages escapes.
func plainJSON(text string) string {
	return strings.NewReplacer(`\u0026`, "&", `\u003c`, "<", `\u003e`, ">").Replace(text)
}

// changeName names the object of a change as arguments do.
func changeName(c api.Change) string {
	kind := map[cluster.Kind]string{
		cluster.KindCluster: wordCluster, cluster.KindTaskDefinition: wordDefinition,
		cluster.KindService: wordService, cluster.KindJob: wordJob, cluster.KindCron: wordCron,
	}[c.Kind]
	return name{kind, c.Cluster, c.Name}.String()
}
