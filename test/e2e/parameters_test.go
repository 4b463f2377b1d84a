package e2e_test

import (
	"testing"

	"github.com/berthd/berth/test/harness"
)

// TestParameters runs the tasks of a matrix. Each finds its values as variables, in its command and in a file.
func TestParameters(t *testing.T) {
	t.Parallel()
	for _, executor := range []string{harness.Process, harness.Containerd} {
		t.Run(executor, func(t *testing.T) {
			t.Parallel()
			harness.Need(t, executor)
			s := harness.New(t, executor)
			s.Dev()
			s.Berth("run", s.Write("job.yaml", `
kind: TaskDefinition
name: show
version: 1
containers:
  - name: main
    image: `+harness.Image+`
    command: [sh, -c, 'while read line; do echo "$OS $ARCH $(OS) $LABEL $line"; done < $BERTH_PARAMETERS']
    env: {OS: none, LABEL: for $(ARCH)}
    resources: {cpu: 10m, memory: 16MiB}
---
kind: Job
name: matrix
steps:
  - name: main
    definition: show@1
    parameters: {matrix: {OS: [linux, plan9], ARCH: [amd64, arm64]}}
`)).Want(t, 0)
			s.Berth("logs", "matrix.1.main.2").Want(t, 0, `linux arm64 linux for arm64 "ARCH": "arm64",`,
				`linux arm64 linux for arm64 "OS": "linux"`)
			s.Berth("logs", "matrix.1.main.1").Want(t, 0, "plan9 amd64 plan9 for amd64")
			s.Berth("status", "job/matrix").Want(t, 0, "ARCH=arm64 OS=plan9")
		})
	}
}
