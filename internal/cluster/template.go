package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"
)

// Bounds of the making of a text from a template, so that none keeps an agent busy.
const (
	// MaxRendered is the longest rendered text, in bytes. MaxRenderSteps limits the iterations of all loops of the
	// template together.
	MaxRendered    = MiB
	MaxRenderSteps = 100_000
	// maxRenderWork limits the intermediate output of functions, in bytes.
	maxRenderWork = 16 * MiB
	// maxVerbs is the most values of one printf call, maxWidth the widest field in characters.
	maxVerbs, maxWidth = 100, 999
)

// Template is a text that a node renders: text/template of Go with few functions, which read only its input and have no
// effects. Equal input gives equal text. The zero value renders an empty text.
type Template struct {
	text      string
	services  []ServicePort // the services that it uses
	env       []variable    // that it reads
	endpoints []string      // the endpoints that it uses
}

// variable is one use of a variable.
type variable struct {
	name string
	line int
}

// TemplateAddress is where a healthy task of a service listens.
type TemplateAddress struct {
	Address string // of the node
	Port    int
	Node    string
	Task    string
}

// String returns "host:port".
func (a TemplateAddress) String() string { return HostPort(a.Address, a.Port) }

// HostPort returns "host:port". An IPv6 address is put in brackets.
func HostPort(host string, port int) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(port)
}

// TemplateNode is the node, as templates see it.
type TemplateNode struct {
	Name, Address, Arch string
	Labels              Labels // that its agent was started with
}

// TemplateTask is the task, as templates see it. Its owner is Service, or Job and Step.
type TemplateTask struct {
	ID, Cluster, Service, Job, Step string
	Index, Count                    int
}

// TemplateInput is the input of a rendering. Templates of tasks read all but Endpoints, templates of files outside of
// tasks read only Endpoints, by the name of each.
type TemplateInput struct {
	Endpoints map[string][]TemplateEndpointAddress

	Services map[ServicePort][]TemplateAddress
	Env      map[string]string
	Node     TemplateNode
	Task     TemplateTask
}

// templateFunctions are all that templates of tasks may call: those of text/template that are harmless, and ours.
var templateFunctions = []string{
	"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "index", "slice", "print", "printf",
	"service", "env", "node", "task", "join", "json", "default", "upper", "lower", "replace",
}

// templateName is the template's name in errors of text/template.
const templateName = "file"

// ParseTemplate reads a template and returns all its faults, each with its line. Services and variables must be
// literals, so the followed services are known before the template is rendered.
func ParseTemplate(text string) (Template, Faults) {
	return parseTemplate(text, walker{functions: templateFunctions})
}

// parseTemplate reads a template with a new walker.
func parseTemplate(text string, w walker) (Template, Faults) {
	t := Template{text: text}
	trees, err := parseTrees(text)
	if err != nil {
		return Template{}, Faults{{Message: describeTemplateError(err)}}
	}
	w.template, w.text, w.trees = &t, text, trees
	for _, name := range sortedTrees(trees) {
		w.node(trees[name].Root)
	}
	if len(w.faults) > 0 {
		return Template{}, w.faults
	}
	return t, nil
}

func parseTrees(text string) (map[string]*parse.Tree, error) {
	trees := map[string]*parse.Tree{}
	tree := parse.New(templateName)
	tree.Mode = parse.SkipFuncCheck
	if _, err := tree.Parse(text, "", "", trees); err != nil {
		return nil, err
	}
	return trees, nil
}

func sortedTrees(trees map[string]*parse.Tree) []string {
	names := make([]string, 0, len(trees))
	for name := range trees { // order-free: sorted below
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// walker collects the services, variables and endpoints of a template.
type walker struct {
	functions []string // that the template may call
	known     []string // the endpoints that the template may name
	template  *Template
	text      string
	trees     map[string]*parse.Tree
	faults    Faults
}

func (w *walker) line(n parse.Node) int {
	return 1 + strings.Count(w.text[:min(int(n.Position()), len(w.text))], "\n")
}

func (w *walker) fault(n parse.Node, format string, args ...any) {
	w.faults = append(w.faults, Fault{Message: fmt.Sprintf("line %d: ", w.line(n)) + fmt.Sprintf(format, args...)})
}

func (w *walker) node(n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, each := range n.Nodes {
				w.node(each)
			}
		}
	case *parse.ActionNode:
		w.pipe(n.Pipe)
	case *parse.IfNode:
		w.branch(&n.BranchNode)
	case *parse.RangeNode:
		w.branch(&n.BranchNode)
	case *parse.WithNode:
		w.branch(&n.BranchNode)
	case *parse.TemplateNode:
		if w.trees[n.Name] == nil {
			w.fault(n, "there is no template %q: want one that is defined in the same file", clip(n.Name))
		}
		w.pipe(n.Pipe)
	case *parse.PipeNode:
		w.pipe(n)
	case *parse.ChainNode:
		w.argument(n.Node)
	}
}

func (w *walker) branch(b *parse.BranchNode) {
	w.pipe(b.Pipe)
	w.node(b.List)
	w.node(b.ElseList)
}

func (w *walker) pipe(p *parse.PipeNode) {
	if p == nil {
		return
	}
	for i, cmd := range p.Cmds {
		args := cmd.Args
		if name, ok := args[0].(*parse.IdentifierNode); ok {
			args = args[1:]
			if w.call(name, args, i > 0) {
				continue
			}
		}
		for _, arg := range args {
			w.argument(arg)
		}
	}
}

// argument checks one argument.
func (w *walker) argument(n parse.Node) {
	if name, ok := n.(*parse.IdentifierNode); ok {
		w.call(name, nil, false)
		return
	}
	w.node(n)
}

// call checks a call, and reports whether its arguments are done.
func (w *walker) call(name *parse.IdentifierNode, args []parse.Node, piped bool) bool {
	switch {
	case !slices.Contains(w.functions, name.Ident):
		w.fault(name, "there is no function %q: want one of %s", clip(name.Ident), strings.Join(w.functions, ", "))
		return false
	case name.Ident == "addresses":
		w.endpoint(name, args, piped)
		return true
	case name.Ident == "service":
		w.service(name, args, piped)
		return true
	case name.Ident == "env":
		words := literals(args)
		if piped || len(args) != 1 || len(words) != 1 {
			w.fault(name, `env wants the name of a variable as literal text, such as env "BERTH_NODE"`)
			return true
		}
		w.template.env = append(w.template.env, variable{words[0], w.line(name)})
		return true
	}
	return false
}

func (w *walker) service(name *parse.IdentifierNode, args []parse.Node, piped bool) {
	words := literals(args)
	if piped || len(args) != 2 || len(words) != 2 {
		w.fault(name, `service wants the names of a service and of its port as literal text, such as service "db" "sql": so it is known what to follow`)
		return
	}
	service, inCluster, dotted := strings.Cut(words[0], ".")
	p := ServicePort{ServiceName{inCluster, service}, words[1]}
	switch {
	case !ValidName(service) || dotted && !ValidName(inCluster):
		w.fault(name, "%q does not name a service: want \"service\", or \"service.cluster\" for one of another cluster",
			clip(words[0]))
	case !ValidName(p.Port):
		w.fault(name, "%q is not the name of a port: want lower-case letters, digits and \"-\"", clip(p.Port))
	case !slices.Contains(w.template.services, p):
		w.template.services = append(w.template.services, p)
	}
}

// literals returns the arguments that are literal text.
func literals(args []parse.Node) (words []string) {
	for _, a := range args {
		if s, ok := a.(*parse.StringNode); ok {
			words = append(words, s.Text)
		}
	}
	return words
}

// Render makes the text. The error says where and why it cannot be made of this input.
func (t Template) Render(in *TemplateInput) (string, error) {
	r := renderer{in: in}
	made, err := template.New(templateName).Option("missingkey=zero").Funcs(r.functions()).Parse(t.text)
	if err != nil {
		return "", errors.New(describeTemplateError(err))
	}
	turn, err := parse.Parse("turn", "{{turn}}", "", "", map[string]any{"turn": r.countIteration})
	if err != nil {
		return "", err
	}
	for _, each := range made.Templates() {
		if each.Tree != nil {
			count(each.Root, turn["turn"].Root.Nodes[0])
		}
	}
	if err := made.Execute(&r, struct{}{}); err != nil {
		return "", errors.New(describeTemplateError(err))
	}
	return r.out.String(), nil
}

// count puts a call at the beginning of each list of actions, so that every iteration is counted.
func count(list *parse.ListNode, call parse.Node) {
	if list == nil {
		return
	}
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.IfNode:
			count(n.List, call)
			count(n.ElseList, call)
		case *parse.RangeNode:
			count(n.List, call)
			count(n.ElseList, call)
		case *parse.WithNode:
			count(n.List, call)
			count(n.ElseList, call)
		}
	}
	list.Nodes = slices.Insert(list.Nodes, 0, call)
}

// try renders the template with invented input, to find faults that any input would show.
func (t Template) try() Faults {
	in := TemplateInput{
		Services: map[ServicePort][]TemplateAddress{}, Env: map[string]string{},
		Endpoints: map[string][]TemplateEndpointAddress{},
	}
	for _, name := range t.endpoints {
		for i, health := range []Health{HealthHealthy, HealthFailing, HealthHealthy} {
			at := TemplateAddress{"192.0.2." + strconv.Itoa(i+1), FirstAutoPort + i, "n", "t"}
			in.Endpoints[name] = append(in.Endpoints[name], TemplateEndpointAddress{at, string(health), "d@1"})
		}
	}
	for _, p := range t.services {
		for i := range 3 {
			in.Services[p] = append(in.Services[p],
				TemplateAddress{Address: "192.0.2." + strconv.Itoa(i+1), Port: FirstAutoPort + i, Node: "n", Task: "t"})
		}
	}
	_, err := t.Render(&in)
	if err == nil || strings.Contains(err.Error(), "error calling index") ||
		strings.Contains(err.Error(), "error calling slice") {
		return nil // which may be well with other input
	}
	return Faults{{Message: err.Error()}}
}

// renderer is one making of a text.
type renderer struct {
	in    *TemplateInput
	out   strings.Builder
	steps int
	work  int
}

// Errors of a template that does too much.
var (
	errTooLong  = fmt.Errorf("the text becomes longer than %s", MaxRendered)
	errTooMuch  = fmt.Errorf("its functions make more than %s of text on the way", maxRenderWork)
	errTooOften = fmt.Errorf("its loops take more than %d turns", MaxRenderSteps)
)

// Write takes the text in.
func (r *renderer) Write(b []byte) (int, error) {
	if r.out.Len()+len(b) > int(MaxRendered) {
		return 0, errTooLong
	}
	return r.out.Write(b)
}

func (r *renderer) countIteration() (string, error) {
	if r.steps++; r.steps > MaxRenderSteps {
		return "", errTooOften
	}
	return "", nil
}

// spend counts text that a function is about to make.
func (r *renderer) countOutput(n int) error {
	if r.work += n; r.work > int(maxRenderWork) || n > int(maxRenderWork) {
		return errTooMuch
	}
	return nil
}

func (r *renderer) functions() template.FuncMap {
	return template.FuncMap{
		"turn": r.countIteration,
		"service": func(name, port string) []TemplateAddress {
			service, inCluster, _ := strings.Cut(name, ".")
			return r.in.Services[ServicePort{ServiceName{inCluster, service}, port}]
		},
		"addresses": func(name string) []TemplateEndpointAddress { return r.in.Endpoints[name] },

		"env":     func(name string) string { return r.in.Env[name] },
		"node":    func() TemplateNode { return r.in.Node },
		"task":    func() TemplateTask { return r.in.Task },
		"print":   r.print,
		"printf":  r.printf,
		"join":    r.join,
		"json":    r.json,
		"default": func(instead, value any) any { return fallback(instead, value) },
		"upper":   func(s string) (string, error) { return strings.ToUpper(s), r.countOutput(len(s)) },
		"lower":   func(s string) (string, error) { return strings.ToLower(s), r.countOutput(len(s)) },
		"replace": r.replace,
	}
}

func (r *renderer) print(args ...any) (string, error) {
	for _, a := range args {
		if err := r.countOutput(1 + sizeOf(a)); err != nil {
			return "", err
		}
	}
	return fmt.Sprint(args...), nil
}

func (r *renderer) printf(format string, args ...any) (string, error) {
	if n := strings.Count(format, "%"); n > maxVerbs {
		return "", fmt.Errorf("printf takes %d values at most", maxVerbs)
	}
	for rest := format; ; {
		_, after, more := strings.Cut(rest, "%")
		if !more {
			break
		}
		flags := after[:len(after)-len(strings.TrimLeft(after, "+-# 0123456789.*["))]
		for _, number := range strings.FieldsFunc(flags, func(c rune) bool { return c < '0' || c > '9' }) {
			if n, err := strconv.Atoi(number); err != nil || n > maxWidth {
				return "", fmt.Errorf("printf writes a value %d wide at most", maxWidth)
			}
		}
		if strings.ContainsAny(flags, "*[") {
			return "", errors.New("printf takes each value once: no * and no [n]")
		}
		rest = after
	}
	if err := r.countOutput(len(format) + maxWidth*strings.Count(format, "%")); err != nil {
		return "", err
	}
	for _, a := range args {
		if err := r.countOutput(4 * sizeOf(a)); err != nil { // %q and % x make more of a text
			return "", err
		}
	}
	return fmt.Sprintf(format, args...), nil
}

// sizeOf is about how long a value is as text.
func sizeOf(a any) int {
	switch a := a.(type) {
	case string:
		return len(a)
	case []TemplateAddress:
		return 100 * len(a)
	case []TemplateEndpointAddress:
		return 100 * len(a)
	case nil, bool, int, float64, TemplateAddress, TemplateEndpointAddress:
		return 100
	}
	return len(fmt.Sprint(a))
}

func (r *renderer) join(separator string, list any) (string, error) {
	var words []string
	switch list := list.(type) {
	case []TemplateAddress:
		words = addressTexts(list)
	case []TemplateEndpointAddress:
		words = addressTexts(list)
	case []string:
		words = list
	default:
		return "", errors.New(`join wants a separator and a list, such as join "," (service "db" "sql")`)
	}
	for _, word := range words {
		if err := r.countOutput(len(word) + len(separator)); err != nil {
			return "", err
		}
	}
	return strings.Join(words, separator), nil
}

func (r *renderer) json(value any) (string, error) {
	if err := r.countOutput(6 * sizeOf(value)); err != nil {
		return "", err
	}
	switch v := value.(type) {
	case TemplateAddress:
		value = v.String()
	case TemplateEndpointAddress:
		value = v.String()
	case []TemplateAddress:
		value = addressTexts(v)
	case []TemplateEndpointAddress:
		value = addressTexts(v)
	}
	b, err := json.Marshal(value)
	return string(b), err
}

// addressTexts returns addresses as "host:port".
func addressTexts[T fmt.Stringer](list []T) []string {
	words := make([]string, len(list))
	for i, a := range list {
		words[i] = a.String()
	}
	return words
}

func (r *renderer) replace(old, with, text string) (string, error) {
	if err := r.countOutput(len(text) + strings.Count(text, old)*len(with)); err != nil {
		return "", err
	}
	return strings.ReplaceAll(text, old, with), nil
}

// fallback returns the value, or instead where that is empty.
func fallback(instead, value any) any {
	if truth, ok := template.IsTrue(value); ok && truth {
		return value
	}
	return instead
}

// describeTemplateError turns what text/template says into a sentence with a line.
func describeTemplateError(err error) string {
	for _, known := range []error{errTooLong, errTooMuch, errTooOften} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	// "template: file:LINE: what", or with a column "template: file:LINE:COLUMN: executing "file" at <what>: why"
	rest := strings.TrimPrefix(err.Error(), "template: ")
	line := "1"
	if place, what, ok := strings.Cut(rest, ": "); ok {
		if parts := strings.Split(place, ":"); len(parts) > 1 {
			line, rest = parts[1], what
		}
	}
	if _, at, found := strings.Cut(rest, " at <"); found && strings.HasPrefix(rest, "executing ") {
		rest = "<" + at
	}
	where, why, _ := strings.Cut(rest, ": can't evaluate field ")
	if field, typ, ok := strings.Cut(why, " in type "); ok {
		if fields := templateFields(typ); fields != "" {
			rest = fmt.Sprintf("%s: there is no field %s: want %s", where, field, fields)
		}
	}
	return "line " + line + ": " + rest
}

// templateFields names the fields of a type.
func templateFields(typ string) string {
	switch typ {
	case "cluster.TemplateAddress":
		return "Address, Port, Node or Task"
	case "cluster.TemplateEndpointAddress":
		return "Address, Port, Node, Task, Health, Healthy or Version"
	case "cluster.TemplateNode":
		return "Name, Address, Arch or Labels"
	case "cluster.TemplateTask":
		return "ID, Cluster, Service, Job, Step, Index or Count"
	case "struct {}":
		return "service, env, node or task, or a field of a value within range or with"
	}
	return ""
}
