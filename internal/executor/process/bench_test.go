package process_test

import (
	"testing"

	"github.com/berthd/berth/internal/executor/executortest/benchmark"
	"github.com/berthd/berth/internal/testkit"
)

func BenchmarkProcess(b *testing.B) {
	testkit.NeedRoot(b)
	testkit.NeedCommand(b, "busybox")
	benchmark.Driver(b, newExecutor(b, b.TempDir()), shell)
}
