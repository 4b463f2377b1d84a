package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/manifest"
	"github.com/berthd/berth/internal/wording"
)

const filesHelp = "FILE is a manifest, a folder of manifests (*.yaml, *.yml, *.json), an http or https URL, or -\n" +
	"for standard input. -f FILE names one, too. An object without a cluster is one of the cluster default;\n" +
	"-n, BERTH_CLUSTER and the context do not change that."

// files are the manifests that a command names, as arguments or with -f.
type files struct{ flagged []string }

func (f *files) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.flagged, "file", "f", nil,
		"a manifest: a `FILE`, a folder, a URL or - for standard input; may be given several times")
}

// arguments returns the check that the command names a manifest.
func (f *files) arguments() cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(f.flagged) > 0 {
			return nil
		}
		return session.Arguments(1, -1, "a manifest: a file, a folder, a URL or - for standard input")(cmd, args)
	}
}

// all returns the names of all manifests.
func (f *files) all(args []string) []string { return slices.Concat(f.flagged, args) }

// ReadManifests reads the objects in files. The error for several faults begins with their count.
func ReadManifests(sess *session.Session, files []string) ([]manifest.Object, error) {
	objects, err := manifest.Read(sess.Stdin, files...)
	// each fault has its own line, including files that cannot be read
	if _, ok := errors.AsType[manifest.Faults](err); ok {
		faults := wording.Count(strings.Count(err.Error(), "\n")+1, "fault")
		return nil, fmt.Errorf("%s in the manifest\n%w", faults, err)
	}
	if errors.Is(err, fs.ErrNotExist) && files[0] != "" && !strings.ContainsAny(files[0], "./") {
		return nil, &hinted.Error{
			Err: err,
			Hint: "Check the path. For a program, write a manifest ('berth init job' prints one); " +
				"'berth exec TASK -- COMMAND' runs a command in a task.",
		}
	}
	return objects, err
}

// sendObjects sends objects that were read from files to the server. Faults that the server finds get their place in
// the files.
func sendObjects(ctx context.Context, c *client.Client, objects []manifest.Object,
	dryRun bool) (api.ApplyReply,
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
		return reply, fmt.Errorf("%s\n%w", refusalLine(refused), LocateFaults(objects, refused.Faults))
	}
	return reply, err
}

func refusalLine(e *client.Error) string {
	if e.Detail != "" {
		return e.Detail
	}
	return "the server refused the manifest"
}

// objectPath matches the path by which the server names a field of an apply.
var objectPath = regexp.MustCompile(`^objects\[(\d+)\]\.?(?:spec\.?)?`)

// LocateFaults returns the server's faults with their places in the files.
func LocateFaults(objects []manifest.Object, faults []cluster.Fault) manifest.Faults {
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
