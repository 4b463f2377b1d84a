package streams

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/logs"
)

// TestLinesOfContainersComeByTime: the output of several containers is ordered by time, and each contributes its last
// lines.
func TestLinesOfContainersComeByTime(t *testing.T) {
	root, began := t.TempDir(), time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	write := func(container string, seconds ...int) *containerLog {
		dir := filepath.Join(root, container)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		var file []byte
		for _, s := range seconds {
			file = logs.Append(file, logs.Line{
				Time: began.Add(time.Duration(s) * time.Second), Stream: logs.Stdout, Text: fmt.Sprint(container, s),
			})
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%016d.log", 0)), file, 0o600); err != nil {
			t.Fatal(err)
		}
		return &containerLog{container: container, dir: dir}
	}
	for name, test := range map[string]struct {
		tail int
		want []string
	}{
		"all lines":            {0, []string{"app1", "side2", "side3", "app4", "side5"}},
		"the last two of each": {2, []string{"app1", "side3", "app4", "side5"}},
	} {
		var out strings.Builder
		read := []*containerLog{
			write("side", 2, 3, 5), write("app", 1, 4), {container: "none", dir: filepath.Join(root, "none")},
		}
		to := &lineWriter{to: json.NewEncoder(&out), lost: func(logs.Line) {}}
		err := readMerged(t.Context(), read, logs.Options{Tail: test.tail}, to)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for d := json.NewDecoder(strings.NewReader(out.String())); d.More(); {
			var line namedLine
			if err := d.Decode(&line); err != nil {
				t.Fatal(err)
			}
			got = append(got, line.Text)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
