package manifest

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// foreignVariable is a variable of Slurm's tasks. A task of Berth has the variable own instead, or none.
type foreignVariable struct{ own, more string }

// batchVariableNames maps variables of Slurm to those of a task.
func batchVariableNames() map[string]foreignVariable {
	return map[string]foreignVariable{
		"SLURM_ARRAY_TASK_ID": {"BERTH_INDEX", ", which counts from 0"}, "SLURM_PROCID": {"BERTH_INDEX", ""},
		"SLURM_ARRAY_TASK_COUNT": {"BERTH_COUNT", ""}, "SLURM_NTASKS": {"BERTH_COUNT", ""},
		"SLURM_NPROCS": {"BERTH_COUNT", ""}, "SLURM_JOB_NAME": {"BERTH_JOB", ""},
		"SLURMD_NODENAME":     {"BERTH_NODE", ""},
		"SLURM_RESTART_COUNT": {"BERTH_ATTEMPT", ", which counts from 1"},
	}
}

// batchVariables adds the faults of the variables of Slurm that a line of a script uses and that Berth has by another
// name.
func (r *reader) batchVariables(at Position, line string) {
	for _, name := range strings.FieldsFunc(line, func(c rune) bool { return (c < 'A' || c > 'Z') && c != '_' }) {
		if v, known := batchVariableNames()[name]; known {
			r.fault(at, "", "variable %s of Slurm: write %s%s", name, v.own, v.more)
		}
	}
}

// batchVariableUse matches the use of a variable of Slurm in an argument: $NAME and ${NAME}, which shells replace, and
// $(NAME), which Berth replaces. ${NAME:-default} is none: its text says what holds without Slurm.
var batchVariableUse = regexp.MustCompile(`\$(?:(SLURMD?_[A-Z_]+)|\{(SLURMD?_[A-Z_]+)\}|\((SLURMD?_[A-Z_]+)\))`)

// refuseForeignVariables adds the faults of the variables of Slurm that a container uses in its command, arguments and
// environment. They would be empty. A variable that the document itself sets is none of Slurm's, and srun sets them.
func (d *decoder) refuseForeignVariables(path string, container *node, to reflect.Type) {
	if to != reflect.TypeFor[cluster.Container]() || startsSlurm(container) {
		return
	}
	for _, name := range []string{"command", "args", "env"} {
		f := container.field(name)
		if f == nil {
			continue
		}
		for i, item := range f.value.items {
			d.refuseForeignVariable(join(path, name)+"["+strconv.Itoa(i)+"]", item)
		}
		for _, variable := range f.value.fields {
			d.refuseForeignVariable(join(join(path, name), variable.key), variable.value)
		}
	}
}

// slurmStart matches a command of a shell that has Slurm start a program.
var slurmStart = regexp.MustCompile(`\b(srun|sbatch|salloc)\b`)

// startsSlurm reports whether the program of a container, or a text in its arguments, has Slurm start a program.
func startsSlurm(container *node) bool {
	for _, name := range []string{"command", "args"} {
		if f := container.field(name); f != nil {
			for _, item := range f.value.items {
				if item.shape == shapeText && slurmStart.MatchString(item.text) {
					return true
				}
			}
		}
	}
	return false
}

// refuseForeignVariable adds the fault of the first variable of Slurm in a text.
func (d *decoder) refuseForeignVariable(path string, n *node) {
	if n.shape != shapeText {
		return
	}
	for _, m := range batchVariableUse.FindAllStringSubmatch(n.text, -1) {
		name := m[1] + m[2] + m[3]
		if sets(d.root, name) {
			continue
		}
		if v, known := batchVariableNames()[name]; known {
			d.fault(n.at, path, "%s is a variable of Slurm: write $(%s)%s", m[0], v.own, v.more)
		} else {
			d.fault(n.at, path, "%s is a variable of Slurm, which tasks of Berth do not have (%s)", m[0], slurmPage)
		}
		return
	}
}

// sets reports whether a value of the document sets a variable: as a field, such as one of env or parameters, as the
// name of a secret's variable, or in a text of a shell.
func sets(n *node, variable string) bool {
	if n.shape == shapeText && (n.text == variable || strings.Contains(n.text, variable+"=")) {
		return true
	}
	for _, item := range n.items {
		if sets(item, variable) {
			return true
		}
	}
	for _, f := range n.fields {
		if f.key == variable || sets(f.value, variable) {
			return true
		}
	}
	return false
}
