package session

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/wording"
)

// SplitList splits the values of a flag at commas.
func SplitList(values []string) []string {
	var all []string
	for _, v := range values {
		for one := range strings.SplitSeq(v, ",") {
			if one = strings.TrimSpace(one); one != "" {
				all = append(all, one)
			}
		}
	}
	return all
}

// Faults collects all faults of a command line for one error.
type Faults struct{ List []string }

// Add adds a fault.
func (f *Faults) Add(format string, args ...any) {
	f.List = append(f.List, fmt.Sprintf(format, args...))
}

// AddError adds err, if it is not nil, as the fault of a flag.
func (f *Faults) AddError(flag string, err error) {
	if err != nil {
		f.Add("%s %v", flag, err)
	}
}

// Err returns the faults as one usage error, or nil.
func (f *Faults) Err(cmd *cobra.Command) error {
	switch len(f.List) {
	case 0:
		return nil
	case 1:
		return &UsageError{cmd.CommandPath(), f.List[0]}
	}
	return &UsageError{cmd.CommandPath(), wording.Count(len(f.List), "fault") + ":\n  " + strings.Join(f.List, "\n  ")}
}
