package containerd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	metadata "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/typeurl/v2"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berthd/berth/internal/executor"
)

// UsedAt sets the time of an image's last use.
func (e *Executor) UsedAt(ctx context.Context, name string, at time.Time) error {
	img := metadata.Image{Name: name, Labels: map[string]string{labelUsed: strconv.FormatInt(at.Unix(), 10)}}
	_, err := e.client.ImageService().Update(e.in(ctx), img, "labels."+labelUsed)
	return err
}

// Creating returns how many containers are being created now.
func (e *Executor) Creating() int { return len(e.creating) }

// Abandon starts a command beside the container's program, like an agent process that is killed before it opened its
// pipes. It returns once the shim waits for the pipes.
func (e *Executor) Abandon(ctx context.Context, id executor.ID, args ...string) error {
	ctx = e.in(ctx)
	r, err := e.load(ctx, id)
	if err != nil {
		return err
	}
	c, err := e.client.LoadContainer(ctx, nameOf(id))
	if err != nil {
		return err
	}
	spec, err := c.Spec(ctx)
	if err != nil {
		return err
	}
	dir := filepath.Join(r.path(execFolder), "1-2", "abandoned") // the first process began at another time
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	request := &tasks.ExecProcessRequest{ContainerID: nameOf(id), ExecID: "abandoned"}
	for name, field := range map[string]*string{"in": &request.Stdin, "out": &request.Stdout, "err": &request.Stderr} {
		*field = filepath.Join(dir, name)
		if err := syscall.Mkfifo(*field, 0o700); err != nil {
			return err
		}
	}
	process := *spec.Process
	process.Args = args
	if request.Spec, err = typeurl.MarshalAnyToProto(&process); err != nil {
		return err
	}
	if _, err := e.client.TaskService().Exec(ctx, request); err != nil {
		return err
	}
	begun := make(chan error, 1)
	go func() {
		_, err := e.client.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: nameOf(id), ExecID: "abandoned"})
		begun <- err
	}()
	select {
	case err := <-begun:
		return fmt.Errorf("the command did not wait for its pipes: %w", err)
	case <-time.After(2 * time.Second): // the runtime takes a part of a second
		return nil
	}
}

// ChooseImage is chooseImage.
func ChooseImage(list ocispec.Descriptor, entries []ocispec.Descriptor, image string) (ocispec.Descriptor, error) {
	return chooseImage(list, entries, image)
}
