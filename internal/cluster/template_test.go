package cluster_test

import (
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

// input returns the input of the templates in these tests.
func input() *cluster.TemplateInput {
	sql := cluster.ServicePort{ServiceName: cluster.ServiceName{Service: "db"}, Port: "sql"}
	other := cluster.ServicePort{ServiceName: cluster.ServiceName{Cluster: "shared", Service: "cache"}, Port: "tcp"}
	return &cluster.TemplateInput{
		Services: map[cluster.ServicePort][]cluster.TemplateAddress{
			sql: {
				{Address: "10.0.0.1", Port: 30001, Node: "n1", Task: "default.db.1.0"},
				{Address: "fd00::2", Port: 30002, Node: "n2", Task: "default.db.1.1"},
			},
			other: nil,
		},
		Env: map[string]string{"GREETING": `say "hi"`, "EMPTY": ""},
		Node: cluster.TemplateNode{
			Name: "n1", Address: "10.0.0.1", Arch: "amd64",
			Labels: cluster.Labels{"zone": "a", "x.y/z": "dotted"},
		},
		Task: cluster.TemplateTask{ID: "default.web.1.0", Cluster: "default", Service: "web", Index: 2, Count: 3},
	}
}

func TestTemplateIsRendered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"plain": {"listen 80;\n", "listen 80;\n"},
		"addresses": {
			`{{range service "db" "sql"}}{{.}} {{.Node}} {{.Task}};{{end}}`,
			"10.0.0.1:30001 n1 default.db.1.0;[fd00::2]:30002 n2 default.db.1.1;",
		},
		"parts": {
			`{{range $i, $a := service "db" "sql"}}{{$i}}={{$a.Address}} {{$a.Port}} {{end}}`,
			"0=10.0.0.1 30001 1=fd00::2 30002 ",
		},
		"none":   {`{{range service "cache.shared" "tcp"}}x{{else}}nobody{{end}}`, "nobody"},
		"joined": {`{{join "," (service "db" "sql")}}`, "10.0.0.1:30001,[fd00::2]:30002"},
		"counted": {
			`{{len (service "db" "sql")}} {{if eq task.Index 2}}third{{end}} of {{task.Count}}`,
			"2 third of 3",
		},
		"node": {
			`{{node.Name}} {{node.Labels.zone}} {{index node.Labels "x.y/z"}} [{{node.Labels.none}}]`,
			"n1 a dotted []",
		},
		"environment": {`{{env "GREETING" | json}} {{env "EMPTY" | default "nothing"}}`, `"say \"hi\"" nothing`},
		"listed":      {`{{service "db" "sql" | json}}`, `["10.0.0.1:30001","[fd00::2]:30002"]`},
		"words": {
			`{{upper "a"}}{{lower "B"}}{{replace "." "-" task.ID}}{{printf "%05d|%-3s|" 7 "x"}}`,
			"Abdefault-web-1-000007|x  |",
		},
		"defined": {
			`{{define "line"}}server {{.}}{{end}}{{range service "db" "sql"}}{{template "line" .}};{{end}}`,
			"server 10.0.0.1:30001;server [fd00::2]:30002;",
		},
	} {
		made, faults := cluster.ParseTemplate(c.text)
		if faults != nil {
			t.Errorf("%s: %v", name, faults)
			continue
		}
		if got, err := made.Render(input()); err != nil || got != c.want {
			t.Errorf("%s: got %q (%v), want %q", name, got, err, c.want)
		}
	}
}

// All faults of a template are reported together, each with its line and correction.
func TestTemplateFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"not closed": {"a\n{{range service \"db\" \"sql\"}}\n", []string{"line 3: unexpected EOF"}},
		"syntax":     {"a\nb {{if}}", []string{"line 2: missing value for if"}},
		"unknown function": {
			"{{\n file \"/etc/shadow\" }}\n{{call .X}}{{exec}}",
			[]string{
				`line 2: there is no function "file": want one of and, or`, `line 3: there is no function "call"`,
				`line 3: there is no function "exec"`,
			},
		},
		"within a pipe": {
			`{{"x" | html}}{{if (urlquery "x")}}{{end}}`,
			[]string{`no function "html"`, `no function "urlquery"`},
		},
		"not literal": {
			"{{$s := \"db\"}}\n{{range service $s \"sql\"}}{{end}}{{\"sql\" | service \"db\"}}{{len service}}",
			[]string{"line 2: service wants the names", "line 2: service wants", "line 2: service wants"},
		},
		"names": {
			`{{service "Db" "sql"}}{{service "db.a.b" "sql"}}{{service "db" "S"}}`,
			[]string{`"Db" does not name a service`, `"db.a.b" does not name`, `"S" is not the name of a port`},
		},
		"variable not literal": {`{{$n := "A"}}{{env $n}}`, []string{"line 1: env wants the name of a variable"}},
		"not defined":          {`{{template "else"}}`, []string{`there is no template "else"`}},
	} {
		_, faults := cluster.ParseTemplate(c.text)
		if len(faults) != len(c.want) {
			t.Errorf("%s: got %d faults (%v), want %d", name, len(faults), faults, len(c.want))
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(faults[i].Message, want) {
				t.Errorf("%s: got %q, want %q", name, faults[i].Message, want)
			}
		}
	}
}

// No template keeps an agent busy, or fills its memory.
func TestTemplateIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"an empty loop":    {"{{range 1000000000}}{{end}}", "more than 100000 turns"},
		"a loop in a loop": {"{{range 1000}}{{range 1000}}{{end}}{{end}}", "more than 100000 turns"},
		"templates in each": {
			`{{define "a"}}{{template "a"}}{{template "a"}}{{end}}{{template "a"}}`,
			"more than 100000 turns",
		},
		"a long text":         {"{{range 100000}}0123456789abcdef{{end}}", "longer than 1 MiB"},
		"a text that doubles": {`{{$x := "0123456789"}}{{range 1000}}{{$x = print $x $x}}{{end}}`, "more than 16 MiB"},
		"a join that doubles": {
			`{{$x := "0123456789"}}{{range 1000}}{{$x = replace "0" $x $x}}{{end}}`,
			"more than 16 MiB",
		},
		"a wide value":         {`{{printf "%1000000d" 1}}`, "999 wide at most"},
		"a wide value by name": {`{{printf "%*d" 1000000 1}}`, "no *"},
		"a precise value":      {`{{printf "%.100000f" 1.0}}`, "999 wide at most"},
		"many values":          {`{{printf "` + strings.Repeat("%d", 101) + `" 1}}`, "100 values at most"},
	} {
		made, faults := cluster.ParseTemplate(c.text)
		if faults != nil {
			t.Errorf("%s: %v", name, faults)
			continue
		}
		if got, err := made.Render(input()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %d bytes and %v, want %q", name, len(got), err, c.want)
		}
	}
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{
		"", "{{", `{{range service "db" "sql"}}{{.}}{{end}}`, `{{env "GREETING"|json}}`,
		`{{printf "%5.2f%%" 1.0}}`, `{{define "a"}}{{end}}{{template "a"}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		made, faults := cluster.ParseTemplate(text)
		for _, fault := range faults {
			if !strings.HasPrefix(fault.Message, "line ") {
				t.Errorf("%q: %q names no line", text, fault.Message)
			}
		}
		if faults != nil {
			return
		}
		one, err := made.Render(input())
		two, again := made.Render(input())
		if one != two || (err == nil) != (again == nil) {
			t.Errorf("%q: made %q (%v), and then %q (%v)", text, one, err, two, again)
		}
	})
}

// Templates of files outside of tasks read the addresses of endpoints that the command names, and nothing of a task.
func TestEndpointTemplates(t *testing.T) {
	t.Parallel()
	known := []string{"web-http", "prod/api"}
	at := func(host, health, task string) cluster.TemplateEndpointAddress {
		return cluster.TemplateEndpointAddress{
			TemplateAddress: cluster.TemplateAddress{Address: host, Port: 30001, Node: "n1", Task: task},
			Health:          health, Version: "web@2",
		}
	}
	in := &cluster.TemplateInput{Endpoints: map[string][]cluster.TemplateEndpointAddress{
		"web-http": {at("10.0.0.1", "healthy", "t0"), at("fd00::2", "failing", "t1")},
	}}
	for text, want := range map[string]string{
		`{{range addresses "web-http"}}server {{.Task}} {{.}}{{if not .Healthy}} disabled{{end}};{{end}}`: "" +
			"server t0 10.0.0.1:30001;server t1 [fd00::2]:30001 disabled;",
		`{{range addresses "web-http"}}{{.Address}} {{.Port}} {{.Node}} {{.Health}} {{.Version}};{{end}}`: "" +
			"10.0.0.1 30001 n1 healthy web@2;fd00::2 30001 n1 failing web@2;",
		`{{join "," (addresses "web-http")}} {{addresses "web-http" | json}} {{len (addresses "web-http")}}`: "" +
			`10.0.0.1:30001,[fd00::2]:30001 ["10.0.0.1:30001","[fd00::2]:30001"] 2`,
		`{{range addresses "prod/api"}}{{.}}{{else}}none{{end}}`: "none",
	} {
		made, faults := cluster.ParseEndpointTemplate(text, known)
		if len(faults) > 0 {
			t.Errorf("%s: %v", text, faults)
			continue
		}
		if got, err := made.Render(in); err != nil || got != want {
			t.Errorf("%s:\ngot  %q, %v\nwant %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"\n{{range addresses \"web\"}}{{end}}{{addresses}}": `line 2: "web" is not one of the endpoints of the command: ` +
			`want one of web-http, prod/api; line 2: addresses wants the name of an endpoint as literal text`,
		`{{task.ID}}`:                             `line 1: there is no function "task": want one of and`,
		`{{service "db" "sql"}}`:                  `line 1: there is no function "service"`,
		`{{$n := "web-http"}}{{addresses $n}}`:    `line 1: addresses wants the name of an endpoint as literal text`,
		`{{range addresses "web-http"}}{{.Host}}`: `line 1: unexpected EOF`,
		`{{range addresses "web-http"}}{{.Host}}{{end}}`: `line 1: <.Host>: there is no field Host: want Address, ` +
			`Port, Node, Task, Health, Healthy or Version`,
	} {
		if _, faults := cluster.ParseEndpointTemplate(text, known); !strings.HasPrefix(faults.Error(), want) {
			t.Errorf("%s:\ngot  %v\nwant %s", text, faults, want)
		}
	}
	if _, faults := cluster.ParseTemplate(`{{addresses "web-http"}}`); len(faults) != 1 {
		t.Errorf("a template of a task reads an endpoint: %v", faults)
	}
}
