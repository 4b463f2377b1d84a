package facts

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

func TestGatherThisMachine(t *testing.T) {
	f, err := Gather(filepath.Join(t.TempDir(), "not", "yet", "there"))
	if err != nil {
		t.Errorf("not found out: %v", err)
	}
	if f.Hostname == "" || f.Kernel == "" || f.BootID == "" || f.CPU < 1000 || f.Memory < cluster.MiB ||
		f.Disk < cluster.MiB || f.Address == "" {
		t.Errorf("facts are incomplete: %+v", f)
	}
}

func TestMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meminfo")
	for content, want := range map[string]cluster.Bytes{
		"MemFree: 1 kB\nMemTotal:       2048 kB\n": 2 * cluster.MiB,
		"MemFree: 1 kB\n":                          0,
		"MemTotal: many kB\n":                      0,
		"":                                         0,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := memory(path)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: got %v, %v; want %v", content, got, err, want)
		}
	}
}

func FuzzMounts(f *testing.F) {
	f.Add([]byte(`36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`))
	f.Add([]byte("36 35 98:0 / / rw - \n - - -\n"))
	f.Add([]byte(`1 2 3 4 \777\04 - a \`))
	f.Fuzz(func(t *testing.T, b []byte) {
		found := mounts(b)
		if lines := 1 + bytes.Count(b, []byte("\n")); len(found) > lines {
			t.Errorf("%d mounts in %d lines", len(found), lines)
		}
		for _, m := range found {
			if m.point == "" || m.kind == "" || m.source == "" || strings.ContainsAny(m.kind, " \n") ||
				len(m.point)+len(m.kind)+len(m.source) > len(b) {
				t.Errorf("%q holds %+v", b, m)
			}
		}
	})
}

func TestMounts(t *testing.T) {
	got := mounts([]byte("36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw\nnonsense\n"))
	want := []mount{{"/mnt 2", "ext3", "/dev/root"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mount{})); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
}
