package containerd_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berthd/berth/internal/executor/containerd"
	"github.com/berthd/berth/internal/executor/executortest/benchmark"
)

func BenchmarkBerth(b *testing.B) {
	n := newNode(b)
	benchmark.Driver(b, n.life(b), shell)
}

func BenchmarkBerthWithoutSeccomp(b *testing.B) {
	n := newNode(b)
	benchmark.Driver(b, n.life(b, func(c *containerd.Config) { c.NoSeccomp = true }), shell)
}

// BenchmarkPlain starts the same container through containerd's client, as its documentation does: once as isolated as
// Berth's, once by the client's defaults, which have no seccomp profile.
func BenchmarkPlain(b *testing.B) {
	n := newNode(b)
	cl, err := client.New(n.daemon.Address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cl.Close() })
	b.Run("same isolation", func(b *testing.B) {
		plain(b, cl, oci.WithCapabilities(nil), seccomp.WithDefaultProfile())
	})
	b.Run("client defaults", func(b *testing.B) { plain(b, cl) })
}

func plain(b *testing.B, cl *client.Client, isolation ...oci.SpecOpts) {
	ctx := namespaces.WithNamespace(b.Context(), "berth")
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	count := 0
	benchmark.FirstInstruction(b, func(volume, script string) func() {
		count++
		img, err := cl.GetImage(ctx, busyboxImage)
		must(err)
		id := fmt.Sprint(strings.NewReplacer("/", "-", "_", "-").Replace(b.Name()), count)
		opts := slices.Concat([]oci.SpecOpts{
			oci.WithImageConfig(img), oci.WithProcessArgs("/bin/busybox", "sh", "-c", script),
			oci.WithHostNamespace(specs.NetworkNamespace), oci.WithHostHostsFile, oci.WithHostResolvconf,
			oci.WithMounts([]specs.Mount{
				{Type: "bind", Source: volume, Destination: "/berth-test", Options: []string{"rbind", "rw"}},
			}),
		}, isolation)
		c, err := cl.NewContainer(ctx, id, client.WithImage(img), client.WithNewSnapshot(id, img),
			client.WithNewSpec(opts...))
		must(err)
		task, err := c.NewTask(ctx, cio.NullIO)
		must(err)
		ended, err := task.Wait(ctx)
		must(err)
		must(task.Start(ctx))
		return func() {
			must(task.Kill(ctx, syscall.SIGKILL))
			<-ended
			_, err := task.Delete(ctx)
			must(err)
			must(c.Delete(ctx, client.WithSnapshotCleanup))
		}
	})
}
