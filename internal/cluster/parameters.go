package cluster

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Bounds of the parameters of a job.
const (
	// MaxParameters limits the parameters of a task.
	MaxParameters = 32
	// MaxParameterBytes limits the parameters of a job as JSON, as the manifest lists them.
	MaxParameterBytes = 128 << 10
)

// ParametersFile is the path of the file in each container of a task that holds the task's parameters as a JSON object
// of strings. Tasks without parameters have no such file. The variable BERTH_PARAMETERS has the path.
const ParametersFile = parametersFolder + "/parameters.json"

const parametersFolder = "/run/berth-task"

// Parameters are values that differ between the tasks of a step. They have a List or a Matrix. Each task gets its
// values as environment variables, in place of variables of the same names in its definition, and as a JSON object in
// the file that BERTH_PARAMETERS names.
type Parameters struct {
	// List has the values of each task by name, in the order of the tasks. All entries have the same names.
	List []map[string]string `json:"list,omitempty"`
	// Matrix has the values of each parameter. There is a task for each combination. The tasks are ordered by the first
	// parameter, then by the second, and so on; the parameters are ordered by name, and values as they are listed.
	Matrix map[string][]string `json:"matrix,omitempty"`
}

// Tasks returns the number of tasks that the parameters make, 0 for nil, and MaxJobTasks+1 for any more than
// MaxJobTasks.
func (p *Parameters) Tasks() int {
	switch {
	case p == nil:
		return 0
	case len(p.Matrix) == 0:
		return min(len(p.List), MaxJobTasks+1)
	}
	n := 1
	for _, values := range p.Matrix { // order-free: a product
		if n *= len(values); n > MaxJobTasks {
			return MaxJobTasks + 1
		}
	}
	return n
}

// Of returns the values of a task of the step by name, nil if it has none.
func (p *Parameters) Of(index int) map[string]string {
	switch {
	case p == nil || index < 0 || index >= p.Tasks():
		return nil
	case len(p.Matrix) == 0:
		return p.List[index]
	}
	values := make(map[string]string, len(p.Matrix))
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(p.Matrix))) {
		list := p.Matrix[name]
		values[name] = list[index%len(list)]
		index /= len(list)
	}
	return values
}

func (p *Parameters) size() int {
	if p == nil {
		return 0
	}
	text, _ := json.Marshal(p) // text always can be encoded
	return len(text)
}

// validate checks the parameters of a step with that many tasks.
func (p *Parameters) validate(k check, count int) {
	if p == nil {
		return
	}
	switch {
	case len(p.List) > 0 && len(p.Matrix) > 0:
		k.fault("has both list and matrix: leave out one of the two")
		return
	case len(p.List) == 0 && len(p.Matrix) == 0:
		k.fault("is empty: write list, with the values of each task, or matrix, with the values of each parameter")
		return
	}
	p.validateList(k)
	p.validateMatrix(k)
	n := p.Tasks()
	if n > MaxJobTasks {
		k.fault("make more than %d tasks, which a step may have", MaxJobTasks)
		return
	}
	k.must(n == 0 || n == count, "make %d tasks, and count is %d: leave out count", n, count)
}

func (p *Parameters) validateList(k check) {
	var first []string
	for i, values := range p.List {
		at := k.index("list", i)
		names := slices.Sorted(maps.Keys(values))
		if i == 0 {
			first = names
			at.must(len(names) > 0, "is empty: a task needs at least one parameter")
			at.parameterNames(names)
		}
		for _, name := range names {
			at.key(name).text(values[name])
		}
		at.must(slices.Equal(names, first), "has the parameters (%s), and the first task has (%s): each task needs "+
			"the same ones", clip(strings.Join(names, ", ")), clip(strings.Join(first, ", ")))
	}
}

func (p *Parameters) validateMatrix(k check) {
	k = k.at("matrix")
	names := slices.Sorted(maps.Keys(p.Matrix))
	k.parameterNames(names)
	for _, name := range names {
		at := k.key(name)
		at.must(len(p.Matrix[name]) > 0, "is empty: a parameter needs at least one value")
		seen := make(map[string]bool, len(p.Matrix[name]))
		for i, value := range p.Matrix[name] {
			at.element(i).text(value)
			at.element(i).must(!seen[value], "%q is there twice", clip(value))
			seen[value] = true
		}
	}
}

// names returns the names of the parameters in order.
func (p *Parameters) names() []string {
	switch {
	case p == nil:
		return nil
	case len(p.List) > 0:
		return slices.Sorted(maps.Keys(p.List[0]))
	}
	return slices.Sorted(maps.Keys(p.Matrix))
}

// CheckDefinition returns the faults of parameters at a path together with the definition that the tasks run: names of
// variables that would have two values, and files in the place of ParametersFile.
func (p *Parameters) CheckDefinition(path string, def *TaskDefinition) Faults {
	k := check{new(Faults), path}
	if p == nil {
		return nil
	}
	for i := range def.Containers {
		c := &def.Containers[i]
		for _, name := range p.names() {
			k.must(!slices.ContainsFunc(c.Secrets, func(s SecretUse) bool { return s.Env == name }),
				"the parameter %s is a variable of the container %s that has a secret: rename one of the two", name,
				c.Name)
			k.must(!slices.ContainsFunc(c.Services, func(s ServiceUse) bool { return s.Env == name }),
				"the parameter %s is a variable of the container %s that has the addresses of a service: rename one "+
					"of the two", name, c.Name)
		}
		k.must(!slices.ContainsFunc(c.places(), func(path string) bool { return within(path, parametersFolder) }),
			"the container %s has something of its own in %s, where Berth puts the parameters", c.Name,
			parametersFolder)
	}
	return *k.faults
}

// places returns the paths at which the container has files, folders and mounts.
func (c *Container) places() (paths []string) {
	for i := range c.Files {
		paths = append(paths, c.Files[i].Path)
	}
	for i := range c.Mounts {
		paths = append(paths, c.Mounts[i].Path)
	}
	for i := range c.Tmpfs {
		paths = append(paths, c.Tmpfs[i].Path)
	}
	for i := range c.Artifacts {
		paths = append(paths, c.Artifacts[i].Path)
	}
	return append(paths, c.SecretFolders()...)
}

// parameterNames demands names that shells can read as variables and that Berth does not set itself.
func (c check) parameterNames(names []string) {
	c.must(len(names) <= MaxParameters, "holds %d parameters, at most %d are allowed", len(names), MaxParameters)
	for _, name := range names {
		at := c.key(name)
		if !validVariable(name) {
			at.fault("is not the name of a parameter: want letters, digits and _, at most %d, no digit first", MaxLabel)
			continue
		}
		for _, reserved := range []string{EnvBerth, EnvPort, EnvAddr} {
			at.must(!strings.HasPrefix(name, reserved),
				"begins with %s, which is reserved for variables that Berth sets", reserved)
		}
	}
}

func validVariable(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != "" && len(name) <= MaxLabel
}
