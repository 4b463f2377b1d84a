package output

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestColumns checks custom columns of lists and of single objects.
func TestColumns(t *testing.T) {
	const list = `[{"name": "web", "labels": {"app": "a", "example.com/tier": "front"}, "count": 3,
		"steps": [{"name": "x"}, {"name": "y"}], "text": "two\n lines"}, {"name": "a-long-name", "labels": null}]`
	tests := []struct {
		name, columns, data, want string
		noTitles                  bool
	}{
		{"a list", "NAME:.name,APP:.labels.app,COUNT:.count", list, `
NAME         APP     COUNT
web          a       3
a-long-name  <none>  <none>
`, false},
		{"one object", "N:.name", `{"name": "web"}`, "\nN\nweb\n", false},
		{"an empty list", "N:.name", `[]`, "\nN\n", false},
		{"map keys", `A:.labels.example\.com/tier,B:.labels['example.com/tier']`, list, `
A       B
front   front
<none>  <none>
`, false},
		{"lists", "FIRST:.steps[0].name,ALL:.steps[*].name,TEXT:$.text", list, `
FIRST   ALL     TEXT
x       x,y     two lines
<none>  <none>  <none>
`, false},
		{"no titles", "N:name,S:{.steps[0,1].name}", list, "\nweb          x,y\na-long-name  <none>\n", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, err := NewTemplate("custom-columns="+test.columns, test.noTitles)
			if err != nil {
				t.Fatal(err)
			}
			v, err := Decode([]byte(test.data))
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			if err := c.Write(&b, v); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimPrefix(test.want, "\n"), b.String()); diff != "" {
				t.Errorf("columns (-want +got):\n%s", diff)
			}
		})
	}
}

// TestColumnsOfAStream checks that only the first element of a stream has titles.
func TestColumnsOfAStream(t *testing.T) {
	c, err := newColumns("N:.name", false)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, name := range []string{"a", "b"} {
		if err := c.WriteItem(&b, map[string]any{"name": name}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := b.String(), "N\na\nb\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestColumnFaults checks that a fault names the column.
func TestColumnFaults(t *testing.T) {
	for text, want := range map[string]string{
		"N:.name,X":      `-o custom-columns: column 2, "X": it has the form TITLE:.path`,
		"N:":             `-o custom-columns: column 1, "N:": it has the form TITLE:.path`,
		":.name":         `-o custom-columns: column 1, ":.name": it has the form TITLE:.path`,
		"N:.name[":       `-o custom-columns: column 1, "N:.name[": `,
		"N:.a,M:.b[x].c": `-o custom-columns: column 2, "M:.b[x].c": `,
		" ":              "-o custom-columns: it is empty: want columns, such as ",
	} {
		if _, err := NewTemplate("custom-columns="+text, false); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}
