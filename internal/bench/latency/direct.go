package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	logs   string // folder for the output
}

func newDirect(address string, flag *programFlag, logs string) (*direct, error) {
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return nil, err
	}
	c, err := client.New(address)
	return &direct{c, flag, logs}, err
}

func (d *direct) close() { _ = d.client.Close() }

// start starts a container, waits for its first instruction, and removes it.
func (d *direct) start(ctx context.Context, i int) (took time.Duration, err error) {
	began := time.Now()
	end, err := d.launch(ctx, fmt.Sprintf("direct-%d", i))
	if err != nil {
		return 0, err
	}
	if err := d.flag.wait(20 * time.Second); err != nil {
		return 0, fmt.Errorf("through containerd: %w", err)
	}
	took = time.Since(began)
	return took, end()
}

// launch starts a container and returns what removes it.
func (d *direct) launch(ctx context.Context, id string) (end func() error, err error) {
	ctx = namespaces.WithNamespace(ctx, containerd.DefaultNamespace)
	img, err := d.client.GetImage(ctx, image)
	if err != nil {
		return nil, err
	}
	c, err := d.client.NewContainer(ctx, id, client.WithImage(img), client.WithNewSnapshot(id, img), client.WithNewSpec(
		oci.WithImageConfig(img), oci.WithProcessArgs(command()...),
		oci.WithHostNamespace(specs.NetworkNamespace), oci.WithHostHostsFile, oci.WithHostResolvconf,
		oci.WithMounts([]specs.Mount{
			{Type: "bind", Source: d.flag.dir, Destination: inside, Options: []string{"rbind", "rw"}},
		}),
		oci.WithCapabilities(nil), seccomp.WithDefaultProfile(),
	))
	if err != nil {
		return nil, err
	}
	task, err := c.NewTask(ctx, cio.LogFile(filepath.Join(d.logs, id)))
	if err != nil {
		return nil, err
	}
	ended, err := task.Wait(ctx)
	if err != nil {
		return nil, err
	}
	if err := task.Start(ctx); err != nil {
		return nil, err
	}
	return func() error {
		err := task.Kill(ctx, syscall.SIGKILL)
		<-ended
		_, err2 := task.Delete(ctx)
		return errors.Join(err, err2, c.Delete(ctx, client.WithSnapshotCleanup))
	}, nil
}
