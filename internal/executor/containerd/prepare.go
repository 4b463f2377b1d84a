package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/containerd/collector"
	"github.com/berthd/berth/internal/executor/containerd/runspec"
	"github.com/berthd/berth/internal/pause"
)

// Prepare implements executor.Executor.
func (e *Executor) Prepare(ctx context.Context, spec executor.Spec, progress func(string)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if progress == nil {
		progress = func(string) {}
	}
	if !collector.ValidID(spec.ID) {
		return fmt.Errorf("%q is not the id of a container", spec.ID)
	}
	if spec.Container.Image == "" {
		return unsupported("image", "the containerd executor runs images only")
	}
	if len(spec.Copies) > 0 {
		return unsupported("artifacts", "in a container of an image the path of each begins with /")
	}
	caps, err := runspec.Capabilities(spec.Container.Capabilities)
	if err != nil {
		return err
	}
	ctx = e.in(ctx)
	unlock, err := e.locks.Lock(ctx, spec.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if done, err := e.preparedBefore(ctx, &spec); done || err != nil {
		return err
	}
	img, release, err := e.image(ctx, &spec, progress)
	if err != nil {
		return err
	}
	defer release() // from then on its container keeps it
	done, err := takeSlot(ctx, e.creating, func() { progress("waiting until fewer containers are being created") })
	if err != nil {
		return err
	}
	defer done()
	progress("creating the container")
	err = e.create(ctx, &spec, img, caps)
	for begin := time.Now(); conflictsWithEarlier(&spec, err) && time.Since(begin) < killLimit; {
		if err := e.clear(ctx, &spec); err != nil {
			return err
		}
		if err := pause.For(ctx, 20*time.Millisecond); err != nil {
			return err
		}
		err = e.create(ctx, &spec, img, caps)
	}
	return err
}

// conflictsWithEarlier reports whether a creation may have failed only because of an earlier creation that an agent's
// death interrupted. Either its container appeared meanwhile, or containerd's delayed cleanup of the same name removed
// a part of the new task. The errors of both cases have no type.
func conflictsWithEarlier(spec *executor.Spec, err error) bool {
	if err == nil || errors.Is(err, executor.ErrUnavailable) {
		return false
	}
	_, again := os.Stat(filepath.Join(spec.Dir, againFile))
	var task taskFault
	return isA(err, errdefs.IsAlreadyExists) || again == nil && errors.As(err, &task)
}

// taskFault is why a task could not be created.
type taskFault struct{ error }

func (f taskFault) Unwrap() error { return f.error }

func unsupported(field, why string) error {
	return fmt.Errorf("%s: %w: %s", field, executor.ErrUnsupported, why)
}

// preparedBefore reports whether the container is already prepared. It removes the remains of an interrupted Prepare.
func (e *Executor) preparedBefore(ctx context.Context, spec *executor.Spec) (bool, error) {
	if _, started := (record{dir: spec.Dir}).intent(); started {
		return false, fmt.Errorf("prepare: %w", executor.ErrStarted)
	}
	if _, err := e.load(ctx, spec.ID); err != nil {
		if err == executor.ErrNotFound { //nolint:errorlint // load returns it bare
			err = nil
		}
		return false, err
	}
	t, err := e.task(ctx, spec.ID)
	if err != nil {
		return false, err
	}
	if t != nil && t.Status == tasktypes.Status_CREATED {
		return true, nil
	}
	return false, e.clear(ctx, spec)
}

// clear removes what an earlier Prepare left half done.
func (e *Executor) clear(ctx context.Context, spec *executor.Spec) error {
	if err := e.remove(ctx, spec.ID); err != nil {
		return err
	}
	// The shim of the interrupted creation may still appear, next to the new one. Remove will search it.
	if err := os.WriteFile(filepath.Join(spec.Dir, againFile), nil, 0o600); err != nil {
		return fmt.Errorf("note the second try: %w", err)
	}
	return nil
}

// makePipes makes the named pipes for the output.
func makePipes(spec *executor.Spec) error {
	for _, name := range []string{collector.StdoutFile, collector.StderrFile} {
		if err := syscall.Mkfifo(filepath.Join(spec.Dir, name), 0o600); err != nil && !os.IsExist(err) {
			return fmt.Errorf("make pipe: %w", err)
		}
	}
	return nil
}

// create makes the pipes, the container and its task.
func (e *Executor) create(ctx context.Context, spec *executor.Spec, img client.Image, caps []string) error {
	if err := makePipes(spec); err != nil {
		return err
	}
	if err := e.collector.Attach(ctx,
		collector.Attachment{
			ID: spec.ID, Dir: spec.Dir, LogDir: spec.LogDir, Secrets: spec.Secrets,
			SecretEnv: spec.SecretEnv,
		}); err != nil {
		return err
	}
	cfg, err := e.config(ctx, img)
	if err != nil {
		return err
	}
	labels := map[string]string{labelDir: spec.Dir, labelID: string(spec.ID), labelImage: img.Target().Digest.String()}
	for k, v := range spec.Labels {
		labels[labelPrefix+k] = v
	}
	opts := []client.NewContainerOpts{
		client.WithImage(img), client.WithContainerLabels(labels),
		client.WithNewSnapshot(nameOf(spec.ID), img),
		client.WithNewSpec(e.spec.Options(spec, cfg, caps, filepath.Join(e.cfg.CgroupParent, nameOf(spec.ID)))...),
	}
	opts = slices.Insert(opts, 0, client.WithSnapshotter(e.snapshotter()))
	c, err := e.client.NewContainer(ctx, nameOf(spec.ID), opts...)
	if err != nil {
		return failed(ctx, "create container", err)
	}
	pipes := cio.NewFIFOSet(cio.Config{
		Stdout: filepath.Join(spec.Dir, collector.StdoutFile), Stderr: filepath.Join(spec.Dir, collector.StderrFile),
	}, nil)
	t, err := c.NewTask(ctx, func(string) (cio.IO, error) { return pipeIO{pipes}, nil })
	if err != nil {
		return taskFault{withImage(failed(ctx, "set up the program", err), spec, cfg.Env)}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.prepared[spec.ID] = prepared{spec.Dir, processOf(int(t.Pid()))}
	return nil
}

// withImage adds to the error of a missing program which image lacks it, and the PATH in which it was searched. env is
// that of the image.
func withImage(err error, spec *executor.Spec, env []string) error {
	if !errors.Is(err, executor.ErrNoProgram) {
		return err
	}
	path := ""
	for _, kv := range slices.Concat(env, spec.Env) {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = value
		}
	}
	return executor.NoProgram(fmt.Errorf("%w (image %s, PATH %s)", err, spec.Container.Image, path))
}

// pipeIO passes the paths of the pipes to containerd. The collector has their other ends.
type pipeIO struct{ set *cio.FIFOSet }

func (p pipeIO) Config() cio.Config { return p.set.Config }

func (pipeIO) Cancel() {}

func (pipeIO) Wait() {}

func (pipeIO) Close() error { return nil }
