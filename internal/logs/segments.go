package logs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const suffix = ".log"

// segmentPath returns the path of the segment whose first line has the number first.
func segmentPath(dir string, first int64) string {
	return filepath.Join(dir, fmt.Sprintf("%016d%s", first, suffix))
}

// segments returns the first numbers of the segments in dir, in order. A missing folder has no segments.
func segments(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list log segments: %w", err)
	}
	var firsts []int64
	for _, e := range entries {
		digits, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok || len(digits) != 16 {
			continue
		}
		if n, err := strconv.ParseInt(digits, 10, 64); err == nil && n >= 0 {
			firsts = append(firsts, n)
		}
	}
	slices.Sort(firsts)
	return firsts, nil
}

// count returns the number of program lines that a line of a file represents.
func count(l Line, err error) int64 {
	if err == nil && l.Lost > 0 {
		return l.Lost
	}
	return 1
}
