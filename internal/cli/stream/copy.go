package stream

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/archive"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// copyCommand is `berth cp`.
type copyCommand struct {
	*session.Session
	options client.CopyOptions
}

// NewCopyCommand returns the command `berth cp`.
func NewCopyCommand(sess *session.Session) *cobra.Command {
	cp := &copyCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "cp [-c CONTAINER] [-L] TASK:PATH PATH | PATH TASK:PATH",
		Short: "Copy files and folders from or to a container of a task",
		Long: "Copy a file or a folder from or to a running container. If the target is a folder, the copy goes\n" +
			"into it; otherwise the copy gets the name of the target. Existing files are overwritten. PATH/.\n" +
			"means the contents of a folder. Permissions, times and links are kept, but not owners: in the\n" +
			"container, files are read and written with the rights of its program and belong to its user. A\n" +
			"relative path in a container begins at the working directory of its program.\n\n" +
			"A link that points outside the copied folder is refused: -L copies the target of the link instead.\n" +
			"Write a local path that contains a colon with a slash before it, as in ./a:b. TASK may be\n" +
			"the name of a service or job, of which a healthy task is picked; its name is printed.",
		Args: session.Arguments(2, 2, "a source and a target, one of them in a task, such as web.1.0:/etc/hosts ."),
		RunE: cp.run,
	}
	addContainerFlag(cmd, &cp.options.Container)
	cmd.Flags().BoolVarP(&cp.options.Follow, "follow-links", "L", false,
		"copy the targets of links instead of the links")
	return cmd
}

func (cp *copyCommand) run(cmd *cobra.Command, args []string) error {
	from, fromTask := splitTaskPath(args[0])
	to, toTask := splitTaskPath(args[1])
	if (fromTask == "") == (toTask == "") {
		return &session.UsageError{
			Command: cmd.CommandPath(),
			Message: "either the source or the target must be in a task, as in web.1.0:/etc/hosts",
		}
	}
	if from == "" || to == "" {
		return &session.UsageError{
			Command: cmd.CommandPath(),
			Message: "a path is missing, as in web.1.0:/etc/hosts",
		}
	}
	c, err := cp.Connect()
	if err != nil {
		return err
	}
	t, err := pickTask(cmd, cp.Session, c, fromTask+toTask)
	if err != nil {
		return err
	}
	var done client.Copied
	cp.options.LeftOut = cp.Stderr
	if fromTask != "" {
		cp.options.Path = from
		done, err = copyFrom(cmd.Context(), c, t.ID, cp.options, to)
	} else {
		cp.options.Path = to
		done, err = copyTo(cmd.Context(), c, t.ID, cp.options, from)
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", args[0], err)
	}
	cp.Messagef("%s copied, %s", wording.Count(done.Files, "file"), cluster.Bytes(done.Bytes))
	return nil
}

// splitTaskPath splits TASK:PATH. A path of this machine has no task.
func splitTaskPath(text string) (path, task string) {
	task, path, found := strings.Cut(text, ":")
	if !found || task == "" || strings.ContainsAny(task, "/") || strings.HasPrefix(task, ".") {
		return text, ""
	}
	return path, task
}

// copyFrom copies files from a container to this machine.
func copyFrom(ctx context.Context, c *client.Client, id cluster.TaskID, o client.CopyOptions, to string) (client.Copied,
	error,
) {
	root, dest, err := openTarget(to)
	if err != nil {
		return client.Copied{}, err
	}
	defer root.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := c.CopyOut(ctx, id, o, w)
		_ = w.CloseWithError(err)
		sent <- err
	}()
	done, err := archive.Unpack(r, root, dest)
	if err == nil {
		_, err = io.Copy(io.Discard, r) // the node's errors come at the end of the stream
	}
	_ = r.CloseWithError(err)
	if err != nil {
		cancel() // without it the sender would report a missing reader
	}
	if broken := <-sent; err == nil {
		err = broken
	}
	return client.Copied(done), err
}

// openTarget opens the folder of the target, and returns the target's path in it. The target may be missing.
func openTarget(to string) (root *os.Root, dest string, err error) {
	info, err := os.Stat(to)
	if err == nil && info.IsDir() {
		root, err = os.OpenRoot(to)
		return root, "/", err
	}
	if err == nil { // a link to a file is followed, like cp does
		if to, err = filepath.EvalSymlinks(strings.TrimRight(to, "/")); err != nil {
			return nil, "", err
		}
	}
	whole, err := filepath.Abs(to)
	if err != nil {
		return nil, "", err
	}
	dest = "/" + filepath.Base(whole)
	if strings.HasSuffix(to, "/") {
		dest += "/"
	}
	root, err = os.OpenRoot(filepath.Dir(whole))
	return root, dest, err
}

// copyTo copies files from this machine to a container.
func copyTo(ctx context.Context, c *client.Client, id cluster.TaskID, o client.CopyOptions, from string) (client.Copied,
	error,
) {
	whole, err := filepath.Abs(from)
	if err != nil {
		return client.Copied{}, err
	}
	info, err := os.Lstat(whole)
	if err != nil {
		return client.Copied{}, err
	}
	dir, path := filepath.Dir(whole), "/"+filepath.Base(whole)
	if o.Follow || info.Mode()&os.ModeSymlink != 0 { // a link may lead to any folder
		dir, path = "/", whole
	}
	if strings.HasSuffix(from, "/.") || from == "." {
		path += "/."
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return client.Copied{}, err
	}
	defer root.Close()
	r, w := io.Pipe()
	packed := make(chan struct{})
	go func() {
		defer close(packed)
		_ = w.CloseWithError(archive.Pack(w, archive.Packing{
			Root: root, Path: path, Follow: o.Follow,
			LeftOut: func(name, what string) { _, _ = fmt.Fprintf(o.LeftOut, "%q is %s\n", name, what) },
		}))
	}()
	done, err := c.CopyIn(ctx, id, o, r)
	_ = r.CloseWithError(err)
	<-packed
	return done, err
}
