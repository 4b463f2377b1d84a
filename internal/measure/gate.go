package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"

	"github.com/berthd/berth/internal/cluster"
)

// maxCost limits the computation of one evaluation, in the units of the expression language: about its steps, and a
// tenth of the bytes that it reads.
const maxCost = 1_000_000

// Gate evaluates a gate once. The message is the observed result, such as "value = 0.02: value < 0.01 is false"; it is
// set whenever the error is nil. An error says that there is no result: no response, or an expression that could not be
// computed on it.
func (r *Reader) Gate(ctx context.Context, g cluster.Gate) (passed bool, message string, err error) {
	expr := pass(&g)
	program, err := r.programs.program(&g)
	if err != nil {
		return false, "", err
	}
	var seen string
	var facts map[string]any
	if g.HTTP == "" {
		v, err := r.Query(ctx, g.Prometheus, g.Query)
		if err != nil {
			return false, "", err
		}
		seen, facts = "value = "+strconv.FormatFloat(v, 'g', 6, 64), map[string]any{"value": v}
	} else {
		status, body, err := r.ask(ctx, g.HTTP)
		if err != nil {
			return false, "", err
		}
		content := held(body)
		seen = "status = " + strconv.Itoa(status) + numbers(expr, content)
		facts = map[string]any{"status": int64(status), "body": string(body), "json": content}
	}
	out, _, err := program.ContextEval(ctx, facts)
	if err != nil {
		return false, "", fmt.Errorf("%s: %s cannot be computed: %s", seen, expr, words(err.Error()))
	}
	passed, ok := out.Value().(bool)
	if !ok {
		return false, "", fmt.Errorf("%s: %s is neither true nor false", seen, expr)
	}
	return passed, fmt.Sprintf("%s: %s is %v", seen, expr, passed), nil
}

// ask sends a request to a URL.
func (r *Reader) ask(ctx context.Context, address string) (status int, body []byte, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return 0, nil, errors.New("the address cannot be read")
	}
	return r.get(ctx, u)
}

// held returns the content of a body if it is JSON, else nil.
func held(body []byte) any {
	var v any
	if json.Unmarshal(body, &v) != nil {
		return nil
	}
	return v
}

// field matches a path into a JSON body, as an expression writes it.
var field = regexp.MustCompile(`\bjson(?:\.[A-Za-z_]\w*)+`)

// numbers returns the values of an expression's fields in a body, as ", json.errors = 7" and so on. It shows only
// numbers and booleans, because text may be confidential.
func numbers(expr string, body any) string {
	var b strings.Builder
	logged := map[string]bool{}
	for _, way := range field.FindAllString(expr, -1) {
		at := body
		for _, name := range strings.Split(way, ".")[1:] {
			object, _ := at.(map[string]any)
			at = object[name]
		}
		switch v := at.(type) {
		case float64, bool:
			if !logged[way] {
				logged[way] = true
				fmt.Fprintf(&b, ", %s = %v", way, v)
			}
		}
	}
	return b.String()
}

// pass returns a gate's expression, or its default.
func pass(g *cluster.Gate) string {
	if g.Pass == "" && g.HTTP != "" {
		return cluster.DefaultGatePass
	}
	return g.Pass
}

// CheckGate returns the fault of a gate's expression: a syntax error, an unknown name, or a result that is not a
// boolean. cluster.Service.Validate checks that required expressions exist.
func CheckGate(g cluster.Gate) error {
	if pass(&g) == "" {
		return nil
	}
	_, err := compile(&g)
	return err
}

// compile reads and checks a gate's expression.
func compile(g *cluster.Gate) (cel.Program, error) {
	expr := pass(g)
	if expr == "" {
		return nil, errors.New("there is no expression to judge the value by")
	}
	facts := []cel.EnvOption{cel.Variable("value", cel.DoubleType)}
	if g.HTTP != "" {
		facts = []cel.EnvOption{
			cel.Variable("status", cel.IntType), cel.Variable("body", cel.StringType),
			cel.Variable("json", cel.DynType),
		}
	}
	env, err := cel.NewEnv(append(facts, cel.CrossTypeNumericComparisons(true))...)
	if err != nil {
		return nil, fmt.Errorf("prepare the expression: %w", err)
	}
	ast, issues := env.Compile(expr)
	if err := issues.Err(); err != nil {
		return nil, errors.New(faults(issues))
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("%s is a %s, want true or false", expr, t)
	}
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxCost),
		cel.InterruptCheckFrequency(1000))
	if err != nil {
		return nil, fmt.Errorf("prepare the expression: %w", err)
	}
	return program, nil
}

// faults describes the faults of an expression, on one line.
func faults(issues *cel.Issues) string {
	var all []string
	for _, e := range issues.Errors() {
		text := words(e.Message)
		if strings.Contains(text, "double, int)") || strings.Contains(text, "int, double)") {
			text += "; numbers like value are written with a point, as 1.0"
		}
		all = append(all, fmt.Sprintf("column %d: %s", e.Location.Column()+1, text))
	}
	return strings.Join(all, "; ")
}

// programs caches compiled expressions. It drops all when it is full; used expressions are then compiled again.
type programs struct {
	most int
	mu   sync.Mutex
	kept map[string]cel.Program
}

func (p *programs) program(g *cluster.Gate) (cel.Program, error) {
	key := "value " + pass(g)
	if g.HTTP != "" {
		key = "answer " + pass(g)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if program, found := p.kept[key]; found {
		return program, nil
	}
	program, err := compile(g)
	if err != nil {
		return nil, err
	}
	if p.kept == nil || len(p.kept) >= p.most {
		p.kept = make(map[string]cel.Program, p.most)
	}
	p.kept[key] = program
	return program, nil
}
