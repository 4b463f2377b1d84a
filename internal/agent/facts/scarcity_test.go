package facts

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

func TestScarcity(t *testing.T) {
	const some = "some avg10=99.00 avg60=0.00 avg300=0.00 total=1\n"
	for name, c := range map[string]struct {
		files machine
		tasks string
		want  Scarcity
	}{
		"a machine whose kernel has no pressure files": {
			want: Scarcity{Stall: -1, Free: 12 * cluster.GiB, Total: 16 * cluster.GiB},
		},
		"a machine with pressures": {
			files: machine{"proc/pressure/memory": some + "full avg10=12.50 avg60=0.00 avg300=0.00 total=1\n"},
			want:  Scarcity{Stall: 12.5, Free: 12 * cluster.GiB, Total: 16 * cluster.GiB},
		},
		"a container of version 2": {
			files: machine{
				"proc/pressure/memory":             some + "full avg10=12.50 avg60=0.00 avg300=0.00 total=1\n",
				"sys/fs/cgroup/cgroup.controllers": "memory\n", "sys/fs/cgroup/memory.max": "2147483648\n",
				"sys/fs/cgroup/memory.current":  "2147483648\n",
				"sys/fs/cgroup/memory.stat":     "inactive_file 1073741824\n",
				"sys/fs/cgroup/memory.pressure": some + "full avg10=3.00\n",
			},
			want: Scarcity{Stall: 3, Free: cluster.GiB, Total: 2 * cluster.GiB},
		},
		"tasks with a limit, version 2": {
			files: machine{
				"sys/fs/cgroup/cgroup.controllers": "memory\n", "sys/fs/cgroup/berth/memory.max": "1073741824\n",
				"sys/fs/cgroup/berth/memory.current":  "1000\n",
				"sys/fs/cgroup/berth/memory.stat":     "inactive_file 400\n",
				"sys/fs/cgroup/berth/memory.pressure": some + "full avg10=40.00\n",
			},
			tasks: "/berth",
			want:  Scarcity{Stall: 40, Free: 12 * cluster.GiB, Total: 16 * cluster.GiB, Used: 600, Limit: cluster.GiB},
		},
		"tasks with a limit, version 1": {
			files: machine{
				"sys/fs/cgroup/memory/berth/memory.limit_in_bytes": "1073741824\n",
				"sys/fs/cgroup/memory/berth/memory.usage_in_bytes": "1000\n",
				"sys/fs/cgroup/memory/berth/memory.stat":           "total_inactive_file 400\n",
			},
			tasks: "/berth",
			want:  Scarcity{Stall: -1, Free: 12 * cluster.GiB, Total: 16 * cluster.GiB, Used: 600, Limit: cluster.GiB},
		},
		"tasks without a limit": {
			files: machine{
				"sys/fs/cgroup/memory/berth/memory.limit_in_bytes": "9223372036854771712\n",
				"sys/fs/cgroup/memory/berth/memory.usage_in_bytes": "1000\n",
			},
			tasks: "/berth",
			want:  Scarcity{Stall: -1, Free: 12 * cluster.GiB, Total: 16 * cluster.GiB},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			before.write(t, root)
			c.files.write(t, root)
			m := &Sampler{root: root}
			got, err := m.Scarcity(c.tasks)
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}
