package containerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/pause"
)

// connection is what all parts of an executor share: the connection to containerd, and the settings.
type connection struct {
	cfg    Config
	client *client.Client
}

func (conn *connection) in(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, conn.cfg.Namespace)
}

// Probe implements executor.Executor.
func (conn *connection) Probe(ctx context.Context) (cluster.ExecutorFact, error) {
	v, err := conn.client.Version(conn.in(ctx))
	if err != nil {
		return cluster.ExecutorFact{}, failed(ctx, "read the version of containerd", err)
	}
	return cluster.ExecutorFact{Name: Name, Version: strings.TrimPrefix(strings.TrimSpace(v.Version), "v")}, nil
}

// load finds a container. It returns ErrNotFound if there is none.
func (conn *connection) load(ctx context.Context, id executor.ID) (record, error) {
	c, err := conn.client.ContainerService().Get(ctx, nameOf(id))
	if isA(err, errdefs.IsNotFound) {
		return record{}, executor.ErrNotFound
	}
	if err != nil {
		return record{}, failed(ctx, "find container", err)
	}
	return recordOf(c), nil
}

// task returns the task of a container, or nil if it has none.
func (conn *connection) task(ctx context.Context, id executor.ID) (*tasktypes.Process, error) {
	resp, err := conn.client.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: nameOf(id)})
	if err != nil {
		if isA(err, errdefs.IsNotFound) {
			return nil, nil
		}
		return nil, failed(ctx, "find task", err)
	}
	return resp.Process, nil
}

// killLimit is how long kill retries after an error of containerd.
const killLimit = 10 * time.Second

// kill ends and deletes the task of a container, if there is one.
func (conn *connection) kill(ctx context.Context, id executor.ID) error {
	begin := time.Now()
	for {
		gone, err := conn.killOnce(ctx, id)
		if gone {
			return nil
		}
		// A task that just ended or whose shim just died is refused for a moment, for reasons without a type.
		if err != nil && (ctx.Err() != nil || errors.Is(err, executor.ErrUnavailable) ||
			time.Since(begin) > killLimit) {
			return err
		}
		if err := pause.For(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

func (conn *connection) killOnce(ctx context.Context, id executor.ID) (gone bool, err error) {
	svc := conn.client.TaskService()
	t, err := conn.task(ctx, id)
	if t == nil {
		return err == nil, err
	}
	if t.Status != tasktypes.Status_STOPPED {
		_, err := svc.Kill(ctx, &tasks.KillRequest{ContainerID: nameOf(id), Signal: uint32(syscall.SIGKILL), All: true})
		if err != nil && !isA(err, errdefs.IsNotFound) {
			return false, failed(ctx, "kill task", err)
		}
		if _, err := svc.Wait(ctx, &tasks.WaitRequest{ContainerID: nameOf(id)}); err != nil {
			return false, failed(ctx, "kill task", err)
		}
	}
	_, err = svc.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: nameOf(id)})
	if isA(err, errdefs.IsNotFound) {
		err = nil
	}
	return err == nil, failed(ctx, "delete task", err)
}

// snapshotter returns the snapshotter for new containers.
func (conn *connection) snapshotter() string {
	return cmp.Or(conn.cfg.Snapshotter, defaults.DefaultSnapshotter)
}

// removeSnapshot removes a container's own layer, if it is there.
func (conn *connection) removeSnapshot(ctx context.Context, snapshotter, key string) error {
	err := conn.client.SnapshotService(snapshotter).Remove(ctx, key)
	if err != nil && !isA(err, errdefs.IsNotFound) {
		return failed(ctx, "delete snapshot", err)
	}
	return nil
}

// failed gives an error of containerd its meaning in the contract.
func failed(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", what, ctx.Err())
	case isA(err, errdefs.IsUnavailable):
		return fmt.Errorf("%s: %w: %w", what, executor.ErrUnavailable, err)
	}
	said, whole := describeRuntimeError(err)
	if whole {
		return said
	}
	return fmt.Errorf("%s: %w", what, said)
}

// isA reports whether an error is of a kind. Some calls of the client return gRPC errors, others translated ones.
func isA(err error, kind func(error) bool) bool {
	return err != nil && (kind(err) || kind(errgrpc.ToNative(err)))
}
