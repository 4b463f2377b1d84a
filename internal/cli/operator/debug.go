package operator

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/redact"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/version"
	"github.com/berthd/berth/internal/wording"
)

// debugCommand is `berth operator debug`.
type debugCommand struct {
	*session.Session
	file   string
	cpu    time.Duration
	events int // number of newest events
}

func newDebugCommand(sess *session.Session) *cobra.Command {
	d := &debugCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "debug", Short: "Write a debug archive, with secrets removed",
		Long: "Writes an archive for troubleshooting: the status, servers, nodes, tasks, objects, events, metrics,\n" +
			"settings and profiles of the servers that --addr names. The command removes the values of\n" +
			"environment variables, the files in manifests, and everything that looks like a token or a password.\n" +
			"Check the archive before you send it.",
		Args: session.Arguments(0, 0, ""),
		RunE: d.run,
	}
	cmd.Flags().StringVarP(&d.file, "output", "o", "", "the `FILE` to write; default berth-debug-<time>.tar.gz")
	cmd.Flags().DurationVar(&d.cpu, "cpu", 2*time.Second, "how long to profile the CPU; 0 for no profile")
	cmd.Flags().IntVar(&d.events, "events", 2000, "number of newest events to include")
	return cmd
}

func (d *debugCommand) run(cmd *cobra.Command, _ []string) error {
	if d.file == "" {
		d.file = "berth-debug-" + d.Now().UTC().Format("20060102-150405") + ".tar.gz"
	}
	return d.writeBundle(cmd.Context())
}

// writeBundle writes a bundle. A part that cannot be read is left out and listed in the bundle.
func (d *debugCommand) writeBundle(ctx context.Context) (err error) {
	f, err := os.OpenFile(d.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(d.file))
		}
	}()
	zipped := gzip.NewWriter(f)
	b := &bundle{tar: tar.NewWriter(zipped), createdAt: d.Now(), scrub: redact.NewScrubber()}
	if err := d.collectAll(ctx, b); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(b.tar.Close(), zipped.Close(), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	if len(b.faults) > 0 {
		d.Messagef("berth: the archive lacks: %s", strings.Join(b.faults, "; "))
	}
	d.Printf("%s", d.file)
	return nil
}

// bundle is an archive in the making.
type bundle struct {
	tar       *tar.Writer
	createdAt time.Time
	scrub     *redact.Scrubber
	faults    []string
}

// collectAll collects all parts. Objects that may hold secrets come first, so that later texts are scrubbed of them.
func (d *debugCommand) collectAll(ctx context.Context, b *bundle) error {
	c, err := d.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Version(ctx); err != nil {
		return err // there is no server to ask
	}
	definitions, _, err := client.All(ctx, client.ListOptions{}, c.Definitions)
	if err == nil {
		for i := range definitions {
			b.scrub.ScrubDefinition(&definitions[i].TaskDefinition)
		}
	}
	b.addJSON("definitions.json", definitions, err)
	b.addJSON("client.json", version.Current(), nil)
	collectObjects(ctx, b, c)
	kept, err := listNewestEvents(ctx, c, d.events)
	b.addJSON("events.json", kept, err)
	to, err := d.FindTarget()
	if err != nil {
		return err
	}
	for i, addr := range to.Addresses {
		one := to
		one.Addresses = []string{addr}
		if err := d.collectServer(ctx, b, fmt.Sprintf("server-%d", i+1), one); err != nil {
			return err
		}
	}
	b.addText("faults.txt", strings.Join(b.faults, "\n")+"\n")
	return ctx.Err()
}

// collectObjects collects the objects that are the same on all servers.
func collectObjects(ctx context.Context, b *bundle, c *client.Client) {
	head, err := c.Status(ctx)
	b.addJSON("status.json", head, err)
	servers, err := fetch.ListServers(ctx, c)
	b.addJSON("servers.json", servers, err)
	nodes, err := session.ListNodes(ctx, c, "")
	b.addJSON("nodes.json", nodes, err)
	clusters, _, err := client.All(ctx, client.ListOptions{}, c.Clusters)
	b.addJSON("clusters.json", clusters, err)
	pools, _, err := client.All(ctx, client.ListOptions{}, c.Pools)
	b.addJSON("pools.json", pools, err)
	all, err := fetch.ListOwners(ctx, c, "", client.ListOptions{})
	b.addJSON("services.json", all.Services, err)
	b.addJSON("jobs.json", all.Jobs, err)
	tasks, err := session.ListTasks(ctx, c, client.TaskFilter{All: true})
	for i := range tasks {
		if tasks[i].LogTail != "" {
			tasks[i].LogTail = redact.Removed // output of programs may hold secrets
		}
	}
	b.addJSON("tasks.json", tasks, err)
	domains, _, err := client.All(ctx, client.ListOptions{}, c.Domains)
	b.addJSON("domains.json", domains, err)
	recovery, err := c.Recovery(ctx)
	b.addJSON("recovery.json", recovery, err)
}

// collectServer collects the data of one server.
func (d *debugCommand) collectServer(ctx context.Context, b *bundle, name string, to session.Target) error {
	c, err := d.ConnectTo(to)
	if err != nil {
		return err
	}
	defer c.Close()
	v, err := c.Version(ctx)
	b.addJSON(filepath.Join(name, "version.json"), v, err)
	if err != nil {
		return ctx.Err() // the fault is listed; the other servers may answer
	}
	settings, err := c.Settings(ctx)
	b.addJSON(filepath.Join(name, "settings.json"), settings, err)
	ready, err := c.Ready(ctx)
	b.addJSON(filepath.Join(name, "ready.json"), ready, err)
	text := func(file string, ask func(io.Writer) error) {
		var buf bytes.Buffer
		if err := ask(&buf); err != nil {
			b.addFault(filepath.Join(name, file), err)
			return
		}
		b.addText(filepath.Join(name, file), buf.String())
	}
	text("metrics.txt", func(w io.Writer) error { return c.Metrics(ctx, w) })
	text("goroutines.txt", func(w io.Writer) error { return c.Goroutines(ctx, w) })
	profile := func(kind string, during time.Duration) {
		var buf bytes.Buffer
		if err := c.Profile(ctx, kind, during, &buf); err != nil {
			b.addFault(filepath.Join(name, kind+".pprof"), err)
			return
		}
		b.add(filepath.Join(name, kind+".pprof"), buf.Bytes()) // names of functions, and numbers
	}
	profile("heap", 0)
	if d.cpu > 0 {
		profile("profile", d.cpu)
	}
	return ctx.Err()
}

// listNewestEvents returns the newest events.
func listNewestEvents(ctx context.Context, c *client.Client, most int) ([]api.EventView, error) {
	var kept []api.EventView
	o := client.EventOptions{}
	for {
		page, err := c.Events(ctx, o, client.ListOptions{})
		if err != nil {
			return kept, err
		}
		kept = append(kept, page.Items...)
		kept = kept[max(0, len(kept)-most):]
		if page.Next == "" || len(page.Items) == 0 {
			return kept, nil
		}
		o.After = page.Items[len(page.Items)-1].ID
	}
}

func (b *bundle) addFault(file string, err error) {
	b.faults = append(b.faults, b.scrub.ScrubText(fmt.Sprintf("%s: %s", file, wording.OneLine(err.Error()))))
}

// addJSON adds a value as JSON, or the error as a fault.
func (b *bundle) addJSON(file string, v any, err error) {
	if err != nil {
		b.addFault(file, err)
		return
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		b.addFault(file, err)
		return
	}
	b.addText(file, string(text)+"\n")
}

// addText adds a text without secrets.
func (b *bundle) addText(file, text string) { b.add(file, []byte(b.scrub.ScrubText(text))) }

func (b *bundle) add(file string, content []byte) {
	err := b.tar.WriteHeader(
		&tar.Header{Name: "berth-debug/" + file, Mode: 0o600, Size: int64(len(content)), ModTime: b.createdAt})
	if err == nil {
		_, err = b.tar.Write(content)
	}
	if err != nil {
		b.faults = append(b.faults, fmt.Sprintf("%s: %v", file, err))
	}
}
