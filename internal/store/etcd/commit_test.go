package etcd

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/store"
)

// TestSharedCompares shows that what several groups compare refuses only those that compare it.
func TestSharedCompares(t *testing.T) {
	t.Parallel()
	engine := open(t, Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
	for _, key := range []string{"a", "b"} {
		if err := write(t.Context(), engine, key); err != nil {
			t.Fatal(err)
		}
	}
	a, err := engine.Read(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	holds, fails := store.Compare{Key: "a", Modified: a.Modified}, store.Compare{Key: "b", Modified: a.Modified}
	group := func(key string, demands ...store.Compare) store.Group {
		return store.Group{Compares: demands, Ops: []store.Op{{Key: key, Value: []byte("1")}}}
	}
	for _, c := range []struct {
		name   string
		groups []store.Group
		want   []bool
	}{
		{"all hold", []store.Group{group("1", holds), group("2", holds), group("3")}, []bool{true, true, true}},
		{"one shared fails", []store.Group{
			group("4", holds, fails), group("5", holds, fails), group("6", holds),
			group("7"),
		}, []bool{false, false, true, true}},
		{"one alone fails", []store.Group{group("8", holds), group("9", holds, fails)}, []bool{true, false}},
	} {
		result, err := engine.Commit(t.Context(), c.groups)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, result.Applied); diff != "" {
			t.Errorf("%s: applied (-want +got):\n%s", c.name, diff)
		}
		for i := range c.groups {
			_, err := engine.Read(t.Context(), c.groups[i].Ops[0].Key)
			if written := err == nil; written != c.want[i] {
				t.Errorf("%s: group %d was written: %v, want %v", c.name, i, written, c.want[i])
			}
		}
	}
}
