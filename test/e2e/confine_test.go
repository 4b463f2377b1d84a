package e2e_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/test/harness"
)

// confined is a job whose program checks everything that a manifest can grant or deny. It fails at the first
// difference.
const confined = `
kind: TaskDefinition
name: confined
version: 1
containers:
  - name: main
    image: ` + harness.Image + `
    command: [sh, -c]
    args:
      - |
        while read -r key value rest; do
          case $key in
            Uid:|Gid:|CapEff:|CapBnd:|NoNewPrivs:) echo "$key $value";;
          esac
        done </proc/self/status
        printf 'file: '; cat /etc/berth-test/app.conf
        (echo x >/etc/berth-test/app.conf) 2>/dev/null && echo "the file could be written"
        (echo x >/berth-test-root) 2>/dev/null && echo "the root could be written"
        (echo x >/tmp/berth-test-root) 2>/dev/null && echo "tmp could be written"
        echo kept >/berth-test-scratch/x && printf 'tmpfs: ' && cat /berth-test-scratch/x
        dd if=/dev/zero of=/berth-test-scratch/big bs=1024k count=5 2>/dev/null || echo "tmpfs is full"
    user: "65534:12"
    read_only_root: true
    capabilities: [NET_BIND_SERVICE, CHOWN]
    files:
      - {path: /etc/berth-test/app.conf, mode: "0400", content: "only mine\n"}
    tmpfs:
      - {path: /berth-test-scratch, size: 2MiB}
    resources: {cpu: 10m, memory: 32MiB}
---
kind: Job
name: confined
steps:
  - {name: all, definition: confined@1}
`

func TestConfinedProgram(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, executor string) {
		needLimits(t) // root's
		s := harness.New(t, executor)
		s.Dev()
		s.Berth("run", s.Write("confined.yaml", confined)).Want(t, 0, "succeeded")
		s.Tasks(client.TaskFilter{Job: "confined"}) // for the leak check
		const want = `Uid: 65534
Gid: 12
CapEff: 0000000000000401
CapBnd: 0000000000000401
NoNewPrivs: 1
file: only mine
tmpfs: kept
tmpfs is full
`
		r := s.Berth("logs", "confined.1.all.0")
		r.Want(t, 0)
		if diff := cmp.Diff(want, r.Stdout); diff != "" {
			t.Errorf("what the program found (-want +got):\n%s", diff)
		}
	})
}
