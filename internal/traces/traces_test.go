package traces_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/traces"
)

// input is a file with a text.
func input(name, text string) traces.Input {
	return traces.Input{Name: name, From: strings.NewReader(text)}
}

const (
	nodes = `sn,cpu_milli,memory_mib,gpu,model
n0,32000,65536,4,G2
n1,64000,65536,0,
`
	pods = `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,4000,4096,1,1000,,LS,Running,50,90,60
p1,2000,4096,1,500,,LS,Running,0,10,
p2,16000,4096,0,0,,LS,Pending,7,,
p3,8000,8192,2,1000,G2|T4,LS,Running,7,7,7
p4,2000,4096,1,500,,LS,Running,9.5,19,9
`
)

func TestReadOpenB(t *testing.T) {
	got, err := traces.ReadOpenB(input("pods.csv", pods), input("nodes.csv", nodes))
	if err != nil {
		t.Fatal(err)
	}
	want := &traces.Trace{
		Nodes: []traces.Node{
			{Name: "n0", CPU: 32000, Memory: 64 * cluster.GiB, GPUs: 4, Model: "G2"},
			{Name: "n1", CPU: 64000, Memory: 64 * cluster.GiB},
		},
		Shapes: []traces.Shape{
			{CPU: 4000, Memory: 4 * cluster.GiB, GPUs: 1},
			{CPU: 2000, Memory: 4 * cluster.GiB, GPUs: 1, Share: 500},
			{CPU: 16000, Memory: 4 * cluster.GiB},
			{CPU: 8000, Memory: 8 * cluster.GiB, GPUs: 2, Models: "G2|T4"},
		},
		Jobs: []traces.Job{
			{ID: "p0", Arrived: 50 * time.Second, Run: 30 * time.Second, Tasks: 1},
			// it was placed immediately, or at an unknown time
			{ID: "p1", Run: 10 * time.Second, Shape: 1, Tasks: 1},
			{ID: "p2", Arrived: 7 * time.Second, Shape: 2, Tasks: 1},                        // no end is known
			{ID: "p3", Arrived: 7 * time.Second, Run: time.Second, Shape: 3, Tasks: 1},      // a second at least
			{ID: "p4", Arrived: 9 * time.Second, Run: 10 * time.Second, Shape: 1, Tasks: 1}, // a fraction is taken down
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
	got, err = traces.ReadOpenB(
		input("pods.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,0,0\nb,1,1,0,0\n"), traces.Input{})
	if err != nil || got.Jobs[1] != (traces.Job{ID: "b", Arrived: time.Second, Tasks: 1}) || len(got.Nodes) != 0 {
		t.Errorf("without times: got %+v, %v, want pods a second apart that do not end", got, err)
	}
}

const log = `; Version: 2.2
; MaxProcs: 10
;
  1  5 -1  100  6 -1 -1  6  100 2048 1 7 1 -1 -1 -1 -1 -1
  2  0 -1   50  4 -1 -1 -1   -1 -1 1 8 1 -1 -1 -1 -1 -1
  3  6 -1  900  8 -1 -1  8  300 -1 1 7 1 -1 -1 -1 -1 -1
  4  7 -1    0  1 -1 -1  1   20 -1 1 9 1 -1 -1 -1 -1 -1
  5  7 -1   10 11 -1 -1 11   20 -1 1 9 1 -1 -1 -1 -1 -1
  6  7 -1   -1  1 -1 -1  1   20 -1 1 9 1 -1 -1 -1 -1 -1
`

func TestReadSWF(t *testing.T) {
	got, err := traces.ReadSWF(input("x.swf", log))
	if err != nil {
		t.Fatal(err)
	}
	s := time.Second
	want := &traces.Trace{
		Procs: 10, Skipped: 2, Shapes: []traces.Shape{{CPU: 1000, Memory: 2 * cluster.MiB}, {CPU: 1000}},
		Jobs: []traces.Job{
			{ID: "2", Run: 50 * s, Limit: 50 * s, Shape: 1, Tasks: 4, User: "8"}, // requested nothing: what it used
			{ID: "1", Arrived: 5 * s, Run: 100 * s, Limit: 100 * s, Tasks: 6, User: "7"},
			// stopped at its limit
			{ID: "3", Arrived: 6 * s, Run: 300 * s, Limit: 300 * s, Shape: 1, Tasks: 8, User: "7"},
			// shorter than a second
			{ID: "4", Arrived: 7 * s, Run: s, Limit: 20 * s, Shape: 1, Tasks: 1, User: "9"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
}

// TestAllFaultsAreReported checks that all faults are returned together, with file and line, and that nothing else is
// returned.
func TestAllFaultsAreReported(t *testing.T) {
	heading := "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
	openb := func(pods, nodes string) (*traces.Trace, error) {
		n := traces.Input{}
		if nodes != "" {
			n = input("n.csv", nodes)
		}
		return traces.ReadOpenB(input("p.csv", pods), n)
	}
	swf := func(text, _ string) (*traces.Trace, error) { return traces.ReadSWF(input("x.swf", text)) }
	for name, c := range map[string]struct {
		read func(a, b string) (*traces.Trace, error)
		a, b string
		want []string
	}{
		"pods and nodes": {
			openb, heading + "a,many,1,0,0\nb,1,1\nc,1,1,0,0\nd,1,-1,300,2000\n",
			"sn,cpu_milli,memory_mib,gpu\nn,1,x,0\n",
			[]string{
				`n.csv:2: memory_mib is "x", want a number from 0 to 1073741824`,
				`p.csv:2: cpu_milli is "many", want a number from 0 to 1000000`,
				`p.csv:3: 3 columns, and the heading has 5`,
				`p.csv:5: memory_mib is "-1", want a number from 0 to 1073741824`,
				`p.csv:5: num_gpu is "300", want a number from 0 to 256`,
				`p.csv:5: gpu_milli is "2000", want a number from 0 to 1000`,
			},
		},
		"no columns": {
			openb, "a,b,cpu_milli\n1,2,3\n", "",
			[]string{
				"p.csv:1: there is no column memory_mib", "p.csv:1: there is no column num_gpu",
				"p.csv:1: there is no column gpu_milli",
			},
		},
		"an empty file": {openb, "", "", []string{"p.csv: is empty, want a heading with the names of the columns"}},
		"no pods":       {openb, heading, "", []string{"p.csv: holds no pods"}},
		"an open quote": {
			openb, heading + "a,1,1,0,0\n\"b,1,1,0,0\nc,1,1,0,0\n", "",
			[]string{`p.csv:3: extraneous or missing " in quoted-field`},
		},
		"a quote inside a cell": {openb, heading + "a\"b,1,1,0,0\nc,x,1,0,0\n", "", []string{
			`p.csv:2: bare " in non-quoted-field`, `p.csv:3: cpu_milli is "x", want a number from 0 to 1000000`,
		}},
		"no text at all": {
			openb, strings.Repeat("\x00", 1<<20), "",
			[]string{"p.csv: a line is too long: is it a trace?"},
		},
		"no processors": {swf, "1 0 0 0 0 0 0 0 0 0 0 0\n", "", []string{"x.swf: no MaxProcs in the header"}},
		"lines of a log": {
			swf, "; MaxProcs: many\n1 0 0\n\n1 0 0 x 0 0 0 NaN 1e300 0 0 0\n1 -7 0 1 1 1 1 1 1 1 1 1\n",
			"",
			[]string{
				`x.swf:1: MaxProcs is "many", want a number from 1 to 10000000`,
				`x.swf:2: 3 columns, want at least 12`,
				`x.swf:4: column 4, the run time, is "x", want a number from 0 to 6307200000, or -1`,
				`x.swf:4: column 9, the requested time, is "1e300", want a number from 0 to 6307200000, or -1`,
				`x.swf:4: column 8, the requested processors, is "NaN", want a number from 0 to 10000000, or -1`,
				`x.swf:5: column 2, the submit time, is "-7", want a number from 0 to 6307200000, or -1`,
			},
		},
		"a line without end": {
			swf, "; MaxProcs: 1\n" + strings.Repeat("1 ", 1<<17), "",
			[]string{"x.swf:2: a line is too long: is it a trace?"},
		},
		"the other format": {
			swf, heading + "a,1,1,0,0\n", "",
			[]string{"x.swf:1: 1 column, want at least 12", "x.swf:2: 1 column, want at least 12"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.read(c.a, c.b)
			faults, ok := errors.AsType[*traces.Faults](err)
			if got != nil || !ok {
				t.Fatalf("got %+v and %v, want nothing but faults", got, err)
			}
			if diff := cmp.Diff(c.want, strings.Split(faults.Error(), "\n")); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
	_, err := swf("; MaxProcs: 9\n"+strings.Repeat("x\n", 50), "")
	if faults, ok := errors.AsType[*traces.Faults](err); !ok || len(faults.List) != 20 || faults.More != 30 ||
		!strings.HasSuffix(err.Error(), "\nand 30 more") {
		t.Errorf("got %v, want 20 faults and how many there are beside them", err)
	}
}

// TestFileThatCannotBeRead checks that errors of the disk are returned as well.
func TestFileThatCannotBeRead(t *testing.T) {
	f, err := os.Open(t.TempDir()) // a folder
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := traces.ReadSWF(traces.Input{Name: "x.swf", From: f}); err == nil ||
		!strings.Contains(err.Error(), "is a directory") {
		t.Errorf("got %v, want what the disk says", err)
	}
	if _, err := traces.ReadOpenB(traces.Input{Name: "p.csv", From: f}, traces.Input{}); err == nil ||
		!strings.Contains(err.Error(), "is a directory") {
		t.Errorf("got %v, want what the disk says", err)
	}
}

func FuzzReadOpenB(f *testing.F) {
	f.Add(pods, nodes)
	f.Add("", "")
	f.Fuzz(func(t *testing.T, pods, nodes string) {
		got, err := traces.ReadOpenB(input("p", pods), input("n", nodes))
		check(t, got, err)
	})
}

func FuzzReadSWF(f *testing.F) {
	f.Add(log)
	f.Add("; MaxProcs: 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := traces.ReadSWF(input("x", text))
		check(t, got, err)
	})
}

// check checks the promises of each trace.
func check(t *testing.T, got *traces.Trace, err error) {
	if (got == nil) != (err != nil) {
		t.Fatalf("got %v and %v, want one of them", got, err)
	}
	if err != nil {
		return
	}
	for _, j := range got.Jobs {
		if j.Arrived < -time.Second || j.Run < 0 || j.Limit < 0 || j.Tasks < 1 || j.Shape < 0 ||
			j.Shape >= len(got.Shapes) || j.Limit > 0 && j.Run > j.Limit {
			t.Fatalf("got the job %+v", j)
		}
	}
}
