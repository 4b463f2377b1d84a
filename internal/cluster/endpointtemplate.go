package cluster

import (
	"slices"
	"strings"
	"text/template/parse"
)

// endpointFunctions are all that templates of files outside of tasks may call.
var endpointFunctions = []string{
	"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "index", "slice", "print", "printf",
	"addresses", "join", "json", "default", "upper", "lower", "replace",
}

// TemplateEndpointAddress is where a task of an endpoint listens.
type TemplateEndpointAddress struct {
	TemplateAddress
	// Health is that of the task, and Version its task definition, such as "web@2".
	Health  string
	Version string
}

// Healthy reports whether the task is healthy. Other tasks have an address if their endpoint has healthy_only: false.
func (a TemplateEndpointAddress) Healthy() bool { return a.Health == string(HealthHealthy) }

// ParseEndpointTemplate reads a template of a file outside of tasks, as ParseTemplate does. The function addresses
// takes one of the known endpoints, also as a literal, in place of the functions about services, the node and the task.
// The faults include those that any addresses would show.
func ParseEndpointTemplate(text string, known []string) (Template, Faults) {
	t, faults := parseTemplate(text, walker{functions: endpointFunctions, known: known})
	if len(faults) == 0 {
		faults = t.try()
	}
	return t, faults
}

func (w *walker) endpoint(name *parse.IdentifierNode, args []parse.Node, piped bool) {
	words := literals(args)
	switch {
	case piped || len(args) != 1 || len(words) != 1:
		w.fault(name, `addresses wants the name of an endpoint as literal text, such as addresses "web-http"`)
	case !slices.Contains(w.known, words[0]):
		w.fault(name, "%q is not one of the endpoints of the command: want one of %s", clip(words[0]),
			strings.Join(w.known, ", "))
	case !slices.Contains(w.template.endpoints, words[0]):
		w.template.endpoints = append(w.template.endpoints, words[0])
	}
}
