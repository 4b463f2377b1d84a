package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berthd/berth/internal/executor/containerd"
)

// direct starts containers through containerd's client, as its documentation does, as isolated as Berth's.
type direct struct {
	client *client.Client
	flag   *programFlag
}

func newDirect(address string, flag *programFlag) (*direct, error) {
	c, err := client.New(address)
	return &direct{c, flag}, err
}

func (d *direct) close() { _ = d.client.Close() }

// start starts a container, waits for its first instruction, and removes it.
func (d *direct) start(ctx context.Context, i int) (took time.Duration, err error) {
	ctx = namespaces.WithNamespace(ctx, containerd.DefaultNamespace)
	img, err := d.client.GetImage(ctx, image)
	if err != nil {
		return 0, err
	}
	id := fmt.Sprintf("direct-%d", i)
	began := time.Now()
	c, err := d.client.NewContainer(ctx, id, client.WithImage(img), client.WithNewSnapshot(id, img), client.WithNewSpec(
		oci.WithImageConfig(img), oci.WithProcessArgs(command()...),
		oci.WithHostNamespace(specs.NetworkNamespace), oci.WithHostHostsFile, oci.WithHostResolvconf,
		oci.WithMounts([]specs.Mount{{Type: "bind", Source: d.flag.dir, Destination: inside, Options: []string{"rbind", "rw"}}}),
		oci.WithCapabilities(nil), seccomp.WithDefaultProfile(),
	))
	if err != nil {
		return 0, err
	}
	task, err := c.NewTask(ctx, cio.NullIO)
	if err != nil {
		return 0, err
	}
	ended, err := task.Wait(ctx)
	if err != nil {
		return 0, err
	}
	if err := task.Start(ctx); err != nil {
		return 0, err
	}
	if err := d.flag.wait(20 * time.Second); err != nil {
		return 0, fmt.Errorf("through containerd: %w", err)
	}
	took = time.Since(began)
	err = task.Kill(ctx, syscall.SIGKILL)
	<-ended
	_, err2 := task.Delete(ctx)
	return took, errors.Join(err, err2, c.Delete(ctx, client.WithSnapshotCleanup))
}
