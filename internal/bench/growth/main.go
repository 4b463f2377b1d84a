// Command growth measures how the cost of decisions grows with the fleet, and draws it: from 1,000 nodes and 10,000
// tasks to 100,000 nodes and 1,000,000 tasks.
//
//	growth -dir docs/reference            measure, write growth.csv, draw growth.svg
//	growth -dir docs/reference -draw      draw only
//
// bench/fleet measures end to end, and writes growth-latency.csv. Without that file its lines are left out of the
// picture.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "growth:", err)
		os.Exit(1)
	}
}

// decided are the columns of growth.csv, and endToEnd those of growth-latency.csv.
var (
	decided = []string{
		"nodes", "tasks", "replicas_per_second", "racks_per_second", "different_per_second",
		"one_p50_us", "one_p99_us",
	}
	endToEnd = []string{"nodes", "tasks", "placed_per_second", "latency_p50_ms", "latency_p99_ms"}
)

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("growth", flag.ContinueOnError)
	dir := flags.String("dir", "docs/reference", "the folder of growth.csv, growth-latency.csv and growth.svg")
	sizes := flags.String("nodes", "1000,3000,10000,30000,100000", "sizes of fleets; each gets ten times as many tasks")
	only := flags.Bool("draw", false, "draw what was measured before")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !*only {
		var rows [][]float64
		for size := range strings.SplitSeq(*sizes, ",") {
			nodes, err := strconv.Atoi(size)
			if err != nil || nodes < 1 {
				return fmt.Errorf("-nodes: %q is not a size", size)
			}
			row := measure(nodes)
			rows = append(rows, row)
			fmt.Fprintf(out, "%7.0f nodes, %9.0f tasks: replicas %7.0f/s, over racks %7.0f/s, all different "+
				"%7.0f/s; one alone %.0f µs, p99 %.0f µs\n",
				row[0], row[1], row[2], row[3], row[4], row[5], row[6])
		}
		if err := writeTable(filepath.Join(*dir, "growth.csv"), decided, rows); err != nil {
			return err
		}
	}
	own, err := readTable(filepath.Join(*dir, "growth.csv"), decided)
	if err != nil {
		return err
	}
	whole, err := readTable(filepath.Join(*dir, "growth-latency.csv"), endToEnd)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(filepath.Join(*dir, "growth.svg"), []byte(picture(own, whole)), 0o644) //nolint:gosec // a picture for all to read
}

// writeTable writes a file of comma-separated numbers below a heading.
func writeTable(path string, columns []string, rows [][]float64) error {
	var b strings.Builder
	b.WriteString(strings.Join(columns, ",") + "\n")
	for _, row := range rows {
		for i, x := range row {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strconv.FormatFloat(x, 'f', -1, 64))
		}
		b.WriteByte('\n')
	}
	return os.WriteFile(path, []byte(b.String()), 0o644) //nolint:gosec // as the picture
}

// readTable reads such a file, whose columns must be these.
func readTable(path string, columns []string) (rows [][]float64, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if lines[0] != strings.Join(columns, ",") {
		return nil, fmt.Errorf("%s: the columns are %s, want %s", path, lines[0], strings.Join(columns, ","))
	}
	for i, line := range lines[1:] {
		var row []float64
		for cell := range strings.SplitSeq(line, ",") {
			x, err := strconv.ParseFloat(cell, 64)
			if err != nil {
				return nil, fmt.Errorf("%s, line %d: %q is not a number", path, i+2, cell)
			}
			row = append(row, x)
		}
		if len(row) != len(columns) {
			return nil, fmt.Errorf("%s, line %d: %d cells, want %d", path, i+2, len(row), len(columns))
		}
		rows = append(rows, row)
	}
	return rows, nil
}
