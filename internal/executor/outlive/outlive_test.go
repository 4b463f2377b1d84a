package outlive_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor/outlive"
)

func TestRecords(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.json")
	var got []int
	if err := outlive.Read(name, &got); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("read of nothing: %v", err)
	}
	for _, want := range [][]int{{1, 2}, {3}} {
		if err := outlive.Write(name, want); err != nil {
			t.Fatal(err)
		}
		if err := outlive.Read(name, &got); err != nil || len(got) != len(want) || got[0] != want[0] {
			t.Errorf("got %v %v, want %v", got, err, want)
		}
	}
	if err := os.WriteFile(name, []byte("[1,"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := outlive.Read(name, &got); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("read of a torn record: %v", err)
	}
	if err := outlive.Write(filepath.Join(name, "b"), 1); err == nil {
		t.Error("wrote below a file")
	}
}

func TestLocks(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	if outlive.Locked(name) {
		t.Error("a lock that is not there is held")
	}
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if outlive.Locked(name) {
		t.Error("a free lock is held")
	}
	if err := outlive.Lock(f); err != nil || !outlive.Locked(name) {
		t.Errorf("lock: %v", err)
	}
	other, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := outlive.Lock(other); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("second lock: %v", err)
	}
	_ = f.Close()
	if outlive.Locked(name) {
		t.Error("the lock outlived its file")
	}
}

func TestKeyedLock(t *testing.T) {
	var k outlive.KeyedLock[string]
	unlock, err := k.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Lock(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if other, err := k.Lock(ctx, "b"); err != nil {
		t.Errorf("another key waits: %v", err)
	} else {
		other()
	}
	n := 0
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			unlock, err := k.Lock(t.Context(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			n++
			unlock()
		})
	}
	unlock()
	wg.Wait()
	if n != 20 {
		t.Errorf("%d of 20 had the lock", n)
	}
}

func TestStartOf(t *testing.T) {
	if outlive.StartOf(os.Getpid()) == 0 || outlive.StartOf(-1) != 0 {
		t.Error("the start of this process is not known, or that of none is")
	}
	st, ok := outlive.StatOf(os.Getpid())
	if !ok || st.Parent != os.Getppid() {
		t.Errorf("%+v %v", st, ok)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("12 (a b) c) S 1 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0")
	f.Add("1 (x")
	f.Add(") S")
	f.Fuzz(func(t *testing.T, s string) {
		if st, ok := outlive.ParseStat(s); ok && !strings.Contains(s, ")") {
			t.Errorf("%q has no end of a name, and yet is %+v", s, st)
		}
	})
}

// A record with any content is refused with its name, or its decoded form can be written and read again.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"Code":3,"At":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{"Code":`))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		name := filepath.Join(t.TempDir(), "record.json")
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		var exit cluster.Exit
		if err := outlive.Read(name, &exit); err != nil {
			if !strings.Contains(err.Error(), name) || errors.Is(err, os.ErrNotExist) {
				t.Errorf("a bad record gives %v", err)
			}
			return
		}
		if err := outlive.Write(name, exit); err != nil {
			t.Fatal(err)
		}
		var back cluster.Exit
		if err := outlive.Read(name, &back); err != nil || !back.At.Equal(exit.At) || back.Code != exit.Code ||
			back.Unknown != exit.Unknown {
			t.Errorf("%+v became %+v: %v", exit, back, err)
		}
	})
}
