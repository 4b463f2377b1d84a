package thread

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// TestApart checks that nothing runs on the first thread of the process, with any number of concurrent callers.
func TestApart(t *testing.T) {
	t.Parallel()
	var first, ran atomic.Int64
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			err := Apart(func() error {
				ran.Add(1)
				if syscall.Gettid() == os.Getpid() {
					first.Add(1)
				}
				runtime.Gosched()
				return errWant
			})
			if !errors.Is(err, errWant) {
				t.Errorf("got %v", err)
			}
		})
	}
	all.Wait()
	if first.Load() != 0 || ran.Load() != 200 {
		t.Errorf("%d of %d ran on the first thread", first.Load(), ran.Load())
	}
}

var errWant = errors.New("said")
