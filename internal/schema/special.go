package schema

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// special is the table of the types whose JSON form is not that of their Go kind. It returns nil for any other type. A
// pattern holds for texts only, and bounds hold for numbers only. The descriptions are for documents without comments.
func (g *Generator) special(t reflect.Type) *Node {
	const number = `[0-9]+(\.[0-9]+)?`
	sign := `-?`
	if g.Strict {
		sign = ""
	}
	switch reflect.New(t).Interface().(type) {
	case *time.Time:
		return &Node{Type: Types{"string"}, Format: "date-time"}
	case *json.RawMessage:
		return &Node{Description: "any JSON value"}
	case *cluster.Duration:
		n := &Node{
			Description: `a duration such as "500ms", "10s" or "5m"`,
			Type:        Types{"string"}, Pattern: `^` + sign + `(0|(` + number + `(ns|us|µs|ms|s|m|h))+)$`,
		}
		if g.Strict { // people also write the number 0
			n.Type, n.Minimum, n.Maximum = Types{"integer", "string"}, new(int), new(int)
		}
		return n
	case *cluster.MilliCPU:
		if g.Stored {
			return &Node{Type: Types{"string"}, Pattern: `^` + sign + `[0-9]+m$`}
		}
		return &Node{
			Description: `CPU time: "500m" or 0.5; written as "500m"`,
			Type:        Types{"string", "number"}, Pattern: `^` + sign + `([0-9]+m|` + number + `)$`, Minimum: g.least(),
		}
	case *cluster.Bytes:
		n := &Node{Type: Types{"integer"}, Minimum: g.least()}
		if !g.Stored {
			n.Description = `a size: bytes, or text such as "256MiB" or "64M"; written as bytes`
			n.Type, n.Pattern = Types{"integer", "string"}, `^`+sign+number+` ?([kKMGT]?B?|[KMGT]iB?)$`
		}
		if g.Strict { // a fraction of a byte is rounded
			n.Type[0] = "number"
		}
		return n
	case *cluster.Portion:
		return &Node{
			Description: `a number of tasks, or a share of them such as "25%"`,
			Type:        Types{"integer", "string"}, Pattern: `^[0-9]+%?$`, Minimum: new(int),
		}
	case *cluster.Priority:
		n := &Node{
			Description: "a priority: a number, or a name such as \"high\"; written as a number",
			Type:        Types{"integer"}, Minimum: new(1), Maximum: new(cluster.MaxPriority),
		}
		if !g.Stored {
			n.Type, n.Pattern = Types{"integer", "string"}, `^(`+strings.Join(cluster.PriorityNames(), "|")+`)$`
		}
		return n
	case *cluster.Ref:
		return &Node{
			Description: `a task definition as "name@version", or "name" for the newest version`,
			Type:        Types{"string"}, Pattern: `^[a-z]([a-z0-9-]*[a-z0-9])?(@[1-9][0-9]*)?$`,
		}
	case *cluster.PortRange:
		return &Node{
			Description: `a port or a range of ports, such as "22" or "8000-8100"`,
			Type:        Types{"string"}, Pattern: `^[1-9][0-9]{0,4}(-[1-9][0-9]{0,4})?$`,
		}
	case *cluster.StatusRange:
		n := &Node{
			Description: `an HTTP status or a range of statuses, such as 401 or "200-299"`,
			Type:        Types{"integer", "string"}, Pattern: `^[1-9][0-9]{2}(-[1-9][0-9]{2})?$`,
		}
		if g.Strict {
			n.Minimum, n.Maximum = new(200), new(599)
		}
		return n
	case *cluster.TaskID:
		return &Node{
			Description: `<cluster>.<service>.<generation>.<index> or <cluster>.<job>.<generation>.<step>.<index>`,
			Type:        Types{"string"},
		}
	}
	return nil
}
