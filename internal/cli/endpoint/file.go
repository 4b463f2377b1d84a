package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

const (
	// answerLimit is how much longer than its wait the answer to a read may take.
	answerLimit = 10 * time.Second
	// commandLimit is how long the command of --exec may take. outputLimit is how much of its output a message has, in
	// bytes.
	commandLimit = time.Minute
	outputLimit  = 500
	// fileMode lets the users of proxies read the file.
	fileMode = 0o644
)

// fileFlags are the flags that write addresses to a file.
type fileFlags struct {
	path, template, command string
	minInterval             time.Duration
}

func (f *fileFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.path, "file", "", "keep this `file` up to date with the addresses, until interrupted")
	cmd.Flags().StringVar(&f.template, "template", "",
		"the `file` with the template of --file; without one, --file has what -o json prints")
	cmd.Flags().StringVar(&f.command, "exec", "",
		"run this `command` with /bin/sh after each change of --file, such as 'systemctl reload haproxy'")
	cmd.Flags().DurationVar(&f.minInterval, "min-interval", time.Second,
		"the shortest time between the end of --exec and the next change of --file")
}

// check returns the faults of the flags.
func (f *fileFlags) check(cmd *cobra.Command, sess *session.Session) error {
	var faults session.Faults
	changed := cmd.Flags().Changed
	if f.path == "" {
		for _, name := range []string{"template", "exec", "min-interval"} {
			if changed(name) {
				faults.Add("--%s has no effect without --file", name)
			}
		}
		if changed("file") {
			faults.Add("--file is empty: want the path of a file")
		}
		return faults.Err(cmd)
	}
	for _, name := range []string{"watch", "output", "no-headers"} {
		if changed(name) {
			faults.Add("--%s and --file exclude each other", name)
		}
	}
	if sess.AllClusters {
		faults.Add("-A and --file exclude each other: name the cluster of each endpoint, as in prod/web-http")
	}
	if f.template != "" && filepath.Clean(f.template) == filepath.Clean(f.path) {
		faults.Add("--template and --file are the same file")
	}
	if info, err := os.Stat(filepath.Dir(f.path)); err != nil || !info.IsDir() {
		faults.Add("--file %s: there is no folder %s", f.path, filepath.Dir(f.path))
	} else if info, err := os.Stat(f.path); err == nil && !info.Mode().IsRegular() {
		faults.Add("--file %s: it is no regular file", f.path)
	}
	return faults.Err(cmd)
}

// publish keeps the file up to date until ctx ends.
func (f *fileFlags) publish(cmd *cobra.Command, sess *session.Session, c *client.Client, args []string) error {
	p := &publisher{
		minInterval: f.minInterval, path: f.path, report: sess.Messagef, describe: session.ErrorText,
		replace: func(text string) (bool, error) { return replaceFile(f.path, []byte(text)) },
	}
	var names []string
	for _, text := range args {
		n, err := sess.ParseObject(cmd, text, wording.KindEndpoint)
		if err != nil {
			return err
		}
		// Templates have the name of the command line, whatever the chosen cluster is.
		short, _ := sess.ParseName(cmd, text, wording.KindEndpoint) // it was read above
		name := dataName(short.Cluster, short.Name)
		if slices.Contains(names, name) {
			return &session.UsageError{
				Command: cmd.CommandPath(),
				Message: "two of the endpoints have the name " + name + ": leave one of them out",
			}
		}
		names = append(names, name)
		read := func(ctx context.Context, index uint64, wait time.Duration) ([]Address, uint64, error) {
			return readAddresses(ctx, c, n, client.ListOptions{Index: index, Wait: wait})
		}
		p.sources = append(p.sources, source{name, read})
	}
	var err error
	if p.render, err = f.renderer(names); err != nil {
		return err
	}
	if f.command != "" {
		p.reload = func(ctx context.Context) error { return runCommand(ctx, f.command, commandLimit) }
	}
	return session.EndOfStream(p.run(cmd.Context()))
}

// readAddresses reads the addresses of an endpoint, see source.read.
func readAddresses(ctx context.Context, c *client.Client, n session.Name, o client.ListOptions) ([]Address, uint64,
	error,
) {
	ctx, cancel := context.WithTimeout(ctx, o.Wait+answerLimit)
	defer cancel()
	page, err := c.EndpointAddresses(ctx, n.Cluster, n.Name, o)
	if err != nil {
		return nil, 0, err
	}
	if len(page.Items) == 0 { // an endpoint that was deleted during the wait has none, either
		if _, err := c.Endpoint(ctx, n.Cluster, n.Name); err != nil {
			return nil, 0, err
		}
	}
	return named(dataName(n.Cluster, n.Name), page.Items), page.Index, nil
}

// renderer returns the function that makes the text of the file.
func (f *fileFlags) renderer(names []string) (func(map[string][]Address) (string, error), error) {
	if f.template == "" {
		return func(known map[string][]Address) (string, error) { return jsonText(names, known) }, nil
	}
	text, err := os.ReadFile(f.template)
	if err != nil {
		return nil, fmt.Errorf("read the template: %w", err)
	}
	t, faults := cluster.ParseEndpointTemplate(string(text), names)
	if len(faults) > 0 {
		lines := make([]string, len(faults))
		for i, fault := range faults {
			lines[i] = f.template + ": " + fault.Message
		}
		return nil, errors.New(strings.Join(lines, "\n"))
	}
	return func(known map[string][]Address) (string, error) {
		in := cluster.TemplateInput{Endpoints: map[string][]cluster.TemplateEndpointAddress{}}
		for name, list := range known { // order-free: a map is filled
			for i := range list {
				in.Endpoints[name] = append(in.Endpoints[name], templateAddress(&list[i]))
			}
		}
		return t.Render(&in)
	}, nil
}

func templateAddress(a *Address) cluster.TemplateEndpointAddress {
	return cluster.TemplateEndpointAddress{
		TemplateAddress: cluster.TemplateAddress{
			Address: a.Host, Port: a.Port, Node: a.Node, Task: string(a.Task),
		},
		Health: string(a.Health), Version: a.Definition.String(),
	}
}

// healthy reports whether the task of the address is healthy.
func (a *Address) healthy() bool { return a.Health == api.HealthHealthy }

// jsonText returns the addresses of the endpoints, in the order of their names on the command line.
func jsonText(names []string, known map[string][]Address) (string, error) {
	all := []Address{}
	for _, name := range names {
		all = append(all, known[name]...)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(all)
	return b.String(), err
}

// replaceFile replaces a file atomically and durably, with mode 0644. It reports whether the content differs from that
// of the present file; an equal file stays.
func replaceFile(path string, content []byte) (changed bool, err error) {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return false, nil
	}
	folder := filepath.Dir(path)
	// The name is hidden, and no proxy includes it.
	next := filepath.Join(folder, "."+filepath.Base(path)+".next")
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return false, err
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Chmod(fileMode), file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return false, errors.Join(err, os.Remove(next))
	}
	dir, err := os.Open(folder)
	if err != nil {
		return true, err
	}
	return true, errors.Join(dir.Sync(), dir.Close())
}

// runCommand runs a command with the shell. Its error has the end of the output. A command that takes longer than the
// limit is killed, with its children.
func runCommand(ctx context.Context, command string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // a daemon that it started may hold the output
	output, err := cmd.CombinedOutput()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success():
		return nil
	case ctx.Err() != nil:
		err = fmt.Errorf("it took longer than %s", limit)
	}
	if text := wording.OneLine(string(output)); text != "" {
		return fmt.Errorf("%w: %s", err, text[max(0, len(text)-outputLimit):])
	}
	return err
}
