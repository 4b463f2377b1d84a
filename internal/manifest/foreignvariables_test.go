package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestForeignVariables checks the faults of variables of Slurm in containers, which would be empty in a task of Berth.
func TestForeignVariables(t *testing.T) {
	for _, test := range []struct {
		name, container string
		want            []string
	}{
		{
			"in a shell", `command: [sh, -c, "work --part $SLURM_ARRAY_TASK_ID"]`,
			[]string{"containers[0].command[2]: $SLURM_ARRAY_TASK_ID is a variable of Slurm: write $(BERTH_INDEX), " +
				"which counts from 0"},
		},
		{
			"in arguments", `command: [work], args: ["${SLURM_NTASKS}", "$(SLURMD_NODENAME)", "$SLURM_RESTART_COUNT"]`,
			[]string{
				"containers[0].args[0]: ${SLURM_NTASKS} is a variable of Slurm: write $(BERTH_COUNT)",
				"containers[0].args[1]: $(SLURMD_NODENAME) is a variable of Slurm: write $(BERTH_NODE)",
				"containers[0].args[2]: $SLURM_RESTART_COUNT is a variable of Slurm: write $(BERTH_ATTEMPT), which " +
					"counts from 1",
			},
		},
		{
			"in the environment", `command: [work], env: {PART: $SLURM_PROCID, NAME: "x-$(SLURM_JOB_NAME)"}`,
			[]string{
				"containers[0].env.PART: $SLURM_PROCID is a variable of Slurm: write $(BERTH_INDEX)",
				"containers[0].env.NAME: $(SLURM_JOB_NAME) is a variable of Slurm: write $(BERTH_JOB)",
			},
		},
		{
			"without a counterpart", `command: [sh, -c, "cd $SLURM_SUBMIT_DIR"]`,
			[]string{"containers[0].command[2]: $SLURM_SUBMIT_DIR is a variable of Slurm, which tasks of Berth do not " +
				"have (docs/guide/from-slurm.md)"},
		},
		{"set in the environment", `command: [sh, -c, "echo $SLURM_PROCID"], env: {SLURM_PROCID: $(BERTH_INDEX)}`, nil},
		{"set by a shell", `command: [sh, -c, "SLURM_PROCID=1; echo $SLURM_PROCID"]`, nil},
		{"of srun", `command: [srun, sh, -c, "echo $SLURM_PROCID"]`, nil},
		{"with a default", `command: [sh, -c, "echo ${SLURM_PROCID:-$BERTH_INDEX}"]`, nil},
		{"a word", `command: [sh, -c, "echo SLURM_PROCID $MY_SLURM_PROCID"]`, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse("m", []byte("{kind: TaskDefinition, name: a, version: 1, containers: [{name: a, "+
				"resources: {cpu: 1, memory: 1GiB}, "+test.container+"}]}"))
			var got []string
			if err != nil {
				for line := range strings.Lines(err.Error()) {
					_, fault, _ := strings.Cut(strings.TrimSpace(line), ": ")
					got = append(got, fault)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}
