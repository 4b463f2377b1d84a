package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/plain"
	"github.com/berthd/berth/internal/spelling"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/wording"
)

// What is wrong with a command, in words that say where and what to do. What is common to many commands is said here.

// ErrorText is the text of an error as a person is told it.
func ErrorText(err error) string {
	text := strings.TrimSpace(plain.Text(err))
	refused, ok := errors.AsType[*client.Error](err)
	if !ok || len(refused.Faults) == 0 || !strings.HasSuffix(text, refused.Error()) {
		return text
	}
	told := strings.TrimSuffix(text, refused.Error())
	list := slices.Clone(refused.Faults)
	for i := range list {
		list[i].Path = flagOfParameter(list[i].Path)
	}
	if len(list) == 1 && faultCountPattern.MatchString(refused.Detail) { // there is no need to count to one
		return told + list[0].String()
	}
	return told + refused.Detail + ":\n  " + strings.ReplaceAll(cluster.Faults(list).Error(), "; ", "\n  ")
}

// countsFaults is what a server says before it lists faults.
var faultCountPattern = regexp.MustCompile(`^the (request|query|address) has (a|\d+) faults?$`)

// flagOf names the flag that became a parameter of a query; the others are left as they are.
func flagOfParameter(path string) string {
	if name, ok := strings.CutPrefix(path, "?"); ok {
		return "--" + strings.ReplaceAll(name, "_", "-")
	}
	return path
}

// systemHint says what to do about what the system of this machine refused, or nothing.
func systemHint(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "'ss -ltnp' tells which program it is: end it, or choose another address."
	case errors.Is(err, store.ErrNoSpace), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "The disk is full: free some of it ('df -h' tells which), or name a folder on another one."
	case errors.Is(err, syscall.EROFS):
		return "That file system is for reading only: name a folder on another one."
	case errors.Is(err, fs.ErrPermission):
		return "This user may not: run it as a user that may, root perhaps, or name another file or folder."
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		if e, ok := errors.AsType[*fs.PathError](err); ok && !filepath.IsAbs(e.Path) {
			if dir, err := os.Getwd(); err == nil {
				return "It was looked for from the folder " + dir + "."
			}
		}
		return "See how the path is written."
	}
	return ""
}

// foreignHint is what to do where something else than a server answers.
func (s *Session) otherProgramHint() string {
	return "What answers at " + s.FindAddresses() +
		" is another program, or a proxy before the server: name the server with --addr or BERTH_ADDR."
}

// answerHint says what to do about a server's answer, where the answer does not say it itself; or nothing.
func (s *Session) answerHint(err error) string {
	if errors.Is(err, client.ErrUncertain) {
		return "Look with 'berth status' what became of it before you ask again."
	}
	if _, ok := errors.AsType[*client.AnswerError](err); ok {
		if _, text := errors.AsType[*json.SyntaxError](err); text {
			return s.otherProgramHint()
		}
		return "The connection was cut, or the server ended: ask again."
	}
	refused, ok := errors.AsType[*client.Error](err)
	if !ok {
		return ""
	}
	switch refused.Status {
	case http.StatusUnauthorized:
		return "Name a token with --token-file, BERTH_TOKEN or BERTH_TOKEN_FILE: the server's own token " +
			"file, or one that `berth token create` made."
	case http.StatusForbidden:
		return "Use a token that may (--token-file, BERTH_TOKEN, BERTH_TOKEN_FILE): an admin makes one with " +
			"`berth token create`."
	}
	if refused.Foreign {
		return s.otherProgramHint()
	}
	return ""
}

// WrongFlag says in our words what is wrong with a flag.
func FlagErrorText(cmd *cobra.Command, err error) string {
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if missing.GetSpecifiedShortnames() != "" {
			return "unknown flag: -" + missing.GetSpecifiedName()
		}
		return err.Error() + suggestFlag(cmd, missing)
	}
	if bare, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Sprintf("--%s needs a value: %s", bare.GetFlag().Name, flagTypeText(bare.GetFlag()))
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fmt.Sprintf("--%s %q: want %s", wrong.GetFlag().Name, wrong.GetValue(), flagTypeText(wrong.GetFlag()))
	}
	return err.Error()
}

// nearFlag asks whether a known flag was meant.
func suggestFlag(cmd *cobra.Command, missing *pflag.NotExistError) string {
	word := missing.GetSpecifiedName()
	if len(word) < 2 || missing.GetSpecifiedShortnames() != "" {
		return ""
	}
	best, least := "", min(2, len(word)-1)+1
	cmd.Flags().VisitAll(func(f *pflag.Flag) { // in the order of their names
		n := spelling.Distance(word, f.Name)
		if strings.HasPrefix(f.Name, word) {
			n = min(n, 1)
		}
		if n < least && !f.Hidden {
			best, least = f.Name, n
		}
	})
	if best == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean --%s?", best)
}

// wantOf says what a flag takes.
func flagTypeText(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "duration":
		return `a duration such as "30s" or "5m"`
	case "int":
		return "a whole number"
	case "uint64":
		return "a whole number from 0 up"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	}
	_, usage := pflag.UnquoteUsage(f)
	return usage
}

// CheckFlags refuses times that lie in the past: no flag means one, and the most that a server would make of it is
// nothing. The flags of commands that tell more faults at once are left to them.
func CheckFlags(cmd *cobra.Command) error {
	var list Faults
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if slices.Contains([]string{"for", "interval", "settle", "snapshot-every", "ttl"}, f.Name) {
			return
		}
		if d, err := time.ParseDuration(f.Value.String()); err == nil && d < 0 && f.Value.Type() == "duration" {
			list.Add("--%s %s: want %s, not less than 0", f.Name, f.Value, flagTypeText(f))
		}
	})
	return list.Err(cmd)
}

// subcommand asks, below a command that takes arguments of its own too, whether one of its commands was meant.
func suggestCommand(cmd *cobra.Command, word string) string {
	path := strings.TrimPrefix(cmd.CommandPath()+" "+word, cmd.Root().Name()+" ")
	if meant := Synonyms()[path]; meant != "" {
		return fmt.Sprintf(": did you mean \"berth %s\"?", meant)
	}
	if !cmd.HasSubCommands() {
		return ""
	}
	cmd.SuggestionsMinimumDistance = 2
	near := cmd.SuggestionsFor(word)
	if len(near) == 0 {
		return ""
	}
	slices.SortStableFunc(near, func(a, b string) int {
		return spelling.Distance(word, a) - spelling.Distance(word, b)
	})
	return fmt.Sprintf(": did you mean %q?", cmd.CommandPath()+" "+near[0])
}

// InQuery demands that the node and the cluster are there which a list was limited to and that came out empty: the name
// may be misspelt.
func CheckFilter(ctx context.Context, c *client.Client, node, in string) error {
	if node != "" {
		nodes, err := ListNodes(ctx, c)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(nodes, func(n api.NodeView) bool { return n.Name == node }) {
			known := make([]string, len(nodes))
			for i := range nodes {
				known[i] = nodes[i].Name
			}
			return UnknownError(wording.KindNode, node, known)
		}
	}
	if in == "" {
		return nil
	}
	_, err := FindCluster(ctx, c, in)
	return err
}
