package store_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// newer is a service as the next build may write it.
var newer = fmt.Sprintf(`{"v":%d,"name":"s"}`, store.RecordVersion+1)

// Records are written with the version of the first release. Those of the build before it and of newer builds are
// distinguished by their version.
func TestRecordVersions(t *testing.T) {
	b, err := store.Encode(&cluster.Service{Name: "s", Mode: cluster.ModeDaemon})
	if err != nil || !strings.HasPrefix(string(b), `{"v":5,`) {
		t.Errorf("got %s %v, want version 5", b, err)
	}
	for _, in := range []string{`{"v":1,"name":"s"}`, `{"v":3,"name":"s"}`, `{"name":"s","v":2}`, `{"v":2}`} {
		if _, err := store.Decode[cluster.Service]([]byte(in)); err != nil {
			t.Errorf("%s: got %v", in, err)
		}
	}
	for in, isNewer := range map[string]bool{
		newer: true, `{"v":12,"name":"s"}`: true, `{"name":"s","v":30}`: true,
		`{"v":0,"name":"s"}`: false, `{"v":-1}`: false, `{"name":"s"}`: false, `{"v":01}`: false, `{"v":2`: false,
	} {
		_, err := store.Decode[cluster.Service]([]byte(in))
		if err == nil || errors.As(err, new(*store.NewerError)) != isNewer {
			t.Errorf("%s: got %v, want an error, of a newer build: %v", in, err, isNewer)
		}
		if isNewer && !errors.Is(err, store.ErrVersion) {
			t.Errorf("%s: got %v, want ErrVersion", in, err)
		}
	}
}

// Tables never publish a snapshot without the record of a newer build. The test starts tables before and after the
// record is written.
func TestTablesEndAtARecordOfANewerBuild(t *testing.T) {
	for name, early := range map[string]bool{"at the start": true, "while they run": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := memory.New(memory.Options{})
				put := func(key, value string) {
					t.Helper()
					if _, err := e.Commit(t.Context(),
						[]store.Group{{Ops: []store.Op{{Key: key, Value: []byte(value)}}}}); err != nil {
						t.Fatal(err)
					}
				}
				tables := store.NewTables(store.TablesConfig{Engine: e, Logger: slog.New(slog.DiscardHandler)})
				ended := make(chan error, 1)
				begin := func() { go func() { ended <- tables.Run(t.Context()) }() }
				if !early {
					begin()
					synctest.Wait()
				}
				before := tables.Snapshot().Revision()
				put(p.Cluster("c"), `junk`) // an unreadable record does not end the tables
				put(p.Service("c", "s"), newer)
				if early {
					begin()
				}
				err := <-ended
				if !errors.As(err, new(*store.NewerError)) ||
					!strings.Contains(err.Error(),
						fmt.Sprintf("service/c/s: the record has version %d, and this build reads 1 to %d",
							store.RecordVersion+1, store.RecordVersion)) {
					t.Errorf("the tables ended with %v", err)
				}
				if _, there := tables.Snapshot().Cluster("c"); early && tables.Snapshot().Revision() != before ||
					there {
					t.Errorf("the tables show revision %d, and were at %d", tables.Snapshot().Revision(), before)
				}
			})
		})
	}
}

func TestCheckReaders(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		write := func(version int) []store.Group {
			return []store.Group{
				{Ops: []store.Op{{Key: p.Cluster("c"), Delete: true}}},
				{Ops: []store.Op{{Key: p.Service("c", "s"), Value: fmt.Appendf(nil, `{"v":%d,"name":"s"}`, version)}}},
			}
		}
		oldest, second := write(1), write(2)
		w.put(p.Server("new"), &cluster.Server{ID: "new", Name: "one", Records: 2, RecordsMin: 1})
		s := w.put(p.Server("newest"), &cluster.Server{ID: "newest", Name: "two", Records: 7, RecordsMin: 2})
		if err := store.CheckReaders(second, s.Servers()); err != nil {
			t.Errorf("with servers that all read it: %v", err)
		}
		w.put(p.Server("mid"), &cluster.Server{ID: "mid", Version: "0.2.0", Records: 1})
		s = w.put(p.Server("old"), &cluster.Server{ID: "old", Name: "three", Version: "0.1.0", Records: 1})
		if err := store.CheckReaders(oldest, s.Servers()); err != nil {
			t.Errorf("what every build reads: %v", err)
		}
		err := store.CheckReaders(second, s.Servers())
		if !errors.Is(err, store.ErrReaders) || !strings.HasSuffix(err.Error(), ": mid (0.2.0), three (0.1.0)") {
			t.Errorf("with servers of older builds: %v", err)
		}
		s = w.put(p.Server("newest"), &cluster.Server{ID: "newest", Records: 7, RecordsMin: 3}) // reads only newer ones
		if err := store.CheckReaders(second, s.Servers()); err == nil || !strings.Contains(err.Error(), "newest") {
			t.Errorf("with a server that does not read it any more: %v", err)
		}
	})
}
