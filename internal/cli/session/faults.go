package session

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/wording"
)

// SplitList splits the values of a flag, each of which may hold several with commas between.
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

// Faults collects all that is wrong with a command line, so that it is told at once.
type Faults struct{ List []string }

// Add notes a fault.
func (f *Faults) Add(format string, args ...any) {
	f.List = append(f.List, fmt.Sprintf(format, args...))
}

// Check notes err, if there is one, as the fault of a flag.
func (f *Faults) AddError(flag string, err error) {
	if err != nil {
		f.Add("%s %v", flag, err)
	}
}

// Err returns the faults as the error of a command, or nil.
func (f *Faults) Err(cmd *cobra.Command) error {
	switch len(f.List) {
	case 0:
		return nil
	case 1:
		return &UsageError{cmd.CommandPath(), f.List[0]}
	}
	return &UsageError{cmd.CommandPath(), wording.Count(len(f.List), "fault") + ":\n  " + strings.Join(f.List, "\n  ")}
}
