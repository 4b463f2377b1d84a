// Command demo shows Berth at work on one machine, with the real binary and real services:
//
//	go run ./examples/demo          deploy, show, serve until Ctrl-C, take down
//	go run ./examples/demo -check   the same, verified step by step, without serving
//
// It uses only the user's interface: the command line, its JSON output and the example manifests beside it. With -check
// it exits 0 only if all checks passed.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demo is one run.
type demo struct {
	examples
	binary string   // of Berth
	flags  []string // more of them for berth dev, such as those for a store that runs elsewhere
	// slowdown multiplies every time limit.
	slowdown int
	stdout   io.Writer
	stderr   io.Writer
	berth    *berth
	// password is the password of redis.
	password string
	promised time.Time // when the gang starts at the latest, as the queue said
	began    time.Time
}

// examples are the manifests and the images that the demo deploys.
type examples struct {
	root   string // of the repository
	data   string // Berth's data directory, removed at the end, with copies of the manifests
	images string // what examples/images built
	plain  bool   // the node runs plain processes, not images
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	check := flags.Bool("check", false, "verify every step, then take everything down")
	binary := flags.String("berth", "", "Berth's binary; without it bin/berth is built")
	images := flags.String("images", "", "folder with the images of the examples; without it they are built")
	executor := flags.String("executor", "auto", "how to run containers: auto, containerd or process")
	slowdown := flags.Int("slowdown", 1, "multiply all time limits by this number, for a slow machine")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	root, err := repository(ctx)
	if err != nil {
		return err
	}
	for _, path := range []*string{binary, images} { // commands run in the folder of the manifests
		if *path != "" {
			if *path, err = filepath.Abs(*path); err != nil {
				return fmt.Errorf("find what the flags name: %w", err)
			}
		}
	}
	data, err := os.MkdirTemp("", "berth-demo-")
	if err != nil {
		return fmt.Errorf("make a data directory: %w", err)
	}
	d := &demo{
		examples: examples{root: root, data: data, images: *images}, binary: *binary,
		flags: flags.Args(), stdout: stdout, stderr: stderr, began: time.Now(), slowdown: *slowdown,
	}
	err = d.play(ctx, *check, *executor)
	// The demo is taken down in any case, also after Ctrl-C.
	down, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.limit(2*time.Minute))
	defer cancel()
	if err = errors.Join(err, d.takeDown(down)); err != nil {
		return err
	}
	if *check {
		d.print("all checks passed")
	}
	return nil
}

// limit stretches a time limit on a slow machine.
func (d *demo) limit(limit time.Duration) time.Duration {
	return limit * time.Duration(max(1, d.slowdown))
}

// play is the story, from nothing to running services.
func (d *demo) play(ctx context.Context, check bool, executor string) error {
	// 1. The system's parts, Berth and the images.
	if err := d.prepare(ctx); err != nil {
		return err
	}

	// 2. One process: control plane, store and agent.
	d.print("starting berth dev")
	b, err := startBerth(ctx, d, executor)
	if err != nil {
		return err
	}
	d.berth = b
	d.print("berth is ready at %s", b.url)
	if d.plain, err = b.runsProcesses(ctx); err != nil {
		return err
	}
	if err := d.writeManifests(); err != nil {
		return err
	}
	if !d.plain {
		for _, archive := range []string{"web.tar", "work.tar", "redis.tar"} {
			if err := b.show(ctx, "image", "load", filepath.Join(d.images, archive)); err != nil {
				return err
			}
		}
	}

	// 3. A web service, redis with its password, and a job of equal tasks; run returns once all is healthy or done.
	d.chapter("deploying the examples; their manifests are in %s", d.data)
	d.password = rand.Text()
	if err := b.keep(ctx, "redis-auth", "requirepass "+d.password+"\n"); err != nil {
		return err
	}
	limit := d.limit(3 * time.Minute).String()
	if err := b.show(ctx, "run", "--timeout", limit, "web.yaml", "redis.yaml", "job.yaml"); err != nil {
		return err
	}
	if err := b.show(ctx, "status"); err != nil {
		return err
	}

	// 4. Batch jobs: steps, retries, the queue and a gang.
	if err := d.showJobs(ctx); err != nil {
		return err
	}
	if err := d.showAddresses(ctx); err != nil {
		return err
	}

	// 5. Verify it, or serve.
	if check {
		return d.verify(ctx)
	}
	d.print("in another terminal: export BERTH_ADDR=%s, then bin/berth status", b.addr())
	d.print("serving until Ctrl-C")
	<-ctx.Done()
	return nil
}

// prepare installs missing packages, and builds the binary and the images.
func (d *demo) prepare(ctx context.Context) error {
	if d.binary != "" && d.images != "" {
		return nil // all that the demo needs is there
	}
	if os.Geteuid() == 0 {
		d.print("installing the system parts that are missing")
		if err := d.tool(ctx, "scripts/install-parts", "--demo"); err != nil {
			return err
		}
	}
	if d.binary == "" {
		d.print("building bin/berth")
		if err := d.tool(ctx, "make", "--no-print-directory", "build"); err != nil {
			return err
		}
		d.binary = filepath.Join(d.root, "bin", "berth")
	}
	if d.images != "" {
		return nil
	}
	d.images = filepath.Join(d.root, "bin", "examples")
	d.print("building the images of the examples")
	return d.tool(ctx, "go", "run", "./examples/images", "-out", d.images)
}

// takeDown stops everything that the demo started, and reports whether anything is left.
func (d *demo) takeDown(ctx context.Context) error {
	var errs []error
	if d.berth != nil {
		d.print("taking everything down")
		errs = append(errs, d.berth.end(ctx))
	}
	if err := os.RemoveAll(d.data); err != nil {
		errs = append(errs, fmt.Errorf("remove the data directory: %w", err))
	}
	return errors.Join(errs...)
}

func (d *demo) showAddresses(ctx context.Context) error {
	tasks, err := d.berth.tasks(ctx)
	if err != nil {
		return err
	}
	for _, t := range tasks {
		for port := range t.Ports {
			d.print("%s: %s %s", t.ID, port, t.addr(port))
		}
	}
	return nil
}

// tool runs a program of the repository; its output belongs to ours.
func (d *demo) tool(ctx context.Context, name string, args ...string) error {
	if strings.Contains(name, "/") {
		name = filepath.Join(d.root, name)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = d.root
	cmd.Stdout, cmd.Stderr = d.stderr, d.stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return nil
}

// manifests are the examples that the demo deploys, in the order of its story.
func manifests() []string {
	return []string{
		"web.yaml", "redis.yaml", "job.yaml", "pipeline.yaml", "import.yaml", "gang.yaml", "backfill.yaml",
		"web-v2.yaml",
	}
}

// deployed lists the manifests in the data directory, without the next version of a service.
func (e *examples) deployed() (files []string) {
	for _, name := range manifests() {
		if _, err := os.Stat(e.example(name)); err == nil && name != "web-v2.yaml" {
			files = append(files, name)
		}
	}
	return files
}

// writeManifests copies the examples to the data directory. If the node runs no images, they name the programs' files
// instead. Nothing else differs, until fitJobs gives some of them a share of the node's CPU.
func (e *examples) writeManifests() error {
	for _, name := range manifests() {
		text, err := os.ReadFile(filepath.Join(e.root, "examples", name))
		if err != nil {
			return fmt.Errorf("read an example: %w", err)
		}
		if e.plain {
			text = plainManifest(text, filepath.Join(e.images, "bin"))
		}
		if err := os.WriteFile(e.example(name), text, 0o600); err != nil {
			return fmt.Errorf("write an example: %w", err)
		}
	}
	return nil
}

// program finds the name of a program at the head of a container's command, and image the
// line that names its image.
var (
	program = regexp.MustCompile(`(?m)^(\s+command: \[)([a-z-]+)`)
	image   = regexp.MustCompile(`(?m)^\s+image: .*\n`)
)

// plainManifest removes the images from a manifest, since a task with an image needs a node that runs images. It gives
// the programs their full path below bin.
func plainManifest(text []byte, bin string) []byte {
	return image.ReplaceAll(program.ReplaceAll(text, []byte("${1}"+bin+"/${2}")), nil)
}

func (e *examples) example(name string) string { return filepath.Join(e.data, name) }

func (d *demo) print(format string, args ...any) {
	fmt.Fprintf(d.stdout, "[%5.1f s] %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// chapter prints what comes next, apart from what came before.
func (d *demo) chapter(format string, args ...any) {
	fmt.Fprintln(d.stdout)
	d.print(format, args...)
}

// repository finds the root of the module that the demo is run from.
func repository(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(out)))
	if _, err := os.Stat(filepath.Join(root, "examples", "web.yaml")); err != nil {
		return "", fmt.Errorf("run the demo from Berth's repository: %w", err)
	}
	return root, nil
}
