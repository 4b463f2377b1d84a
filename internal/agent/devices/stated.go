package devices

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// Stated is a device, or several equal ones, that the operator declares.
type Stated struct {
	Text   string // as written
	ID     string
	Type   string
	Model  string
	Memory cluster.Bytes
	Numa   int // -1: not given
	Nodes  []Node
	CDI    string
	Count  int // 0 means 1
}

// MaxStated limits the devices of one statement.
const MaxStated = 256

// ParseStated reads "type=gpu,model=A100,memory=40GiB,path=/dev/nvidia0,numa=0,id=a,count=1,cdi=vendor/class=name".
// Type is required unless the path or the CDI name is that of a discovered device; all other parts are optional. A path
// may occur several times, and HOST:CONTAINER gives it another path in the container. The error lists all faults.
func ParseStated(text string) (Stated, error) {
	s := Stated{Text: text, Numa: -1}
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		if !ok || value == "" {
			fault("%q: want key=value", part)
			continue
		}
		if seen[key] && key != "path" {
			fault("%s is repeated", key)
		}
		seen[key] = true
		if err := s.set(key, value); err != nil {
			errs = append(errs, err)
		}
	}
	if s.Type == "" && s.CDI == "" && len(s.Nodes) == 0 {
		fault("type is missing: want such as type=gpu")
	}
	if s.CDI != "" && len(s.Nodes) > 0 {
		fault("path and cdi exclude each other: the CDI specification says what a container gets")
	}
	if s.CDI != "" && s.Type == "" {
		_, class, _ := strings.Cut(strings.Split(s.CDI, "=")[0], "/")
		s.Type = class
	}
	return s, errors.Join(errs...)
}

// set reads one part of a statement.
func (s *Stated) set(key, value string) error {
	switch key {
	case "type":
		s.Type = value
		if !cluster.ValidName(value) || value == cluster.CoreType {
			return fmt.Errorf("type %q: want lower-case letters, digits and \"-\", and not %q, which means "+
				"the node's cores", value, cluster.CoreType)
		}
	case "model", "id":
		if label(value) != value {
			return fmt.Errorf("%s %q: want printable text of at most %d bytes", key, value, cluster.MaxLabel)
		}
		if key == "id" {
			s.ID = value
		} else {
			s.Model = value
		}
	case "memory":
		b, err := cluster.ParseBytes(value)
		if err != nil || b < 0 || b > cluster.MaxMemory {
			return fmt.Errorf("memory %q: want a size such as 40GiB", value)
		}
		s.Memory = b
	case "numa":
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n > maxNuma {
			return fmt.Errorf("numa %q: want the number of a NUMA node", value)
		}
		s.Numa = n
	case "count":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > MaxStated {
			return fmt.Errorf("count %q: want a number from 1 to %d", value, MaxStated)
		}
		s.Count = n
	case "path":
		host, path, two := strings.Cut(value, ":")
		if !two {
			path = host
		}
		if !filepath.IsAbs(host) || !filepath.IsAbs(path) || filepath.Clean(host) != host ||
			filepath.Clean(path) != path || path == "/" {
			return fmt.Errorf("path %q: want an absolute path, or HOST:CONTAINER of such", value)
		}
		s.Nodes = append(s.Nodes, Node{host, path})
	case "cdi":
		kind, name, ok := strings.Cut(value, "=")
		vendor, class, two := strings.Cut(kind, "/")
		if !ok || !two || vendor == "" || name == "" || !cluster.ValidName(class) || class == cluster.CoreType {
			return fmt.Errorf("cdi %q: want vendor/class=name", value)
		}
		s.CDI = value
	default:
		return fmt.Errorf("%q is not known: want type, model, memory, path, numa, id, count or cdi", key)
	}
	return nil
}

// maxNuma is the highest number of a NUMA node in Linux.
const maxNuma = 1023

// id returns the ID of the i-th stated device.
func (s *Stated) id(i int) string {
	id := s.ID
	switch {
	case id != "":
	case s.CDI != "":
		id = s.CDI
	case len(s.Nodes) > 0:
		id = filepath.Base(s.Nodes[0].Host)
	default:
		id = s.Type
	}
	if s.Count > 1 {
		id += "-" + strconv.Itoa(i)
	}
	return id
}

// lines returns the lines of a file, none if it cannot be read.
func (f *Finder) lines(name string) []string {
	b, err := os.ReadFile(f.path(name))
	if err != nil {
		return nil
	}
	return strings.Split(string(b), "\n")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
