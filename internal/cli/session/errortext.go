package session

import (
	"cmp"
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

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/plain"
	"github.com/berthd/berth/internal/spelling"
	"github.com/berthd/berth/internal/store"
)

// Texts of errors and hints that many commands share.

// ErrorText returns the text of an error for a user.
func ErrorText(err error) string {
	text := strings.TrimSpace(plain.Text(err))
	refused, ok := errors.AsType[*client.Error](err)
	if !ok || len(refused.Faults) == 0 || !strings.HasSuffix(text, refused.Error()) {
		return text
	}
	prefix := strings.TrimSuffix(text, refused.Error())
	list := slices.Clone(refused.Faults)
	for i := range list {
		list[i].Path = flagOfParameter(list[i].Path)
	}
	if len(list) == 1 && faultCountPattern.MatchString(refused.Detail) { // a count of one fault is redundant
		return prefix + list[0].String()
	}
	return prefix + refused.Detail + ":\n  " + strings.ReplaceAll(cluster.Faults(list).Error(), "; ", "\n  ")
}

// faultCountPattern matches the sentence with which a server introduces a list of faults.
var faultCountPattern = regexp.MustCompile(`^the (request|query|address) has (a|\d+) faults?$`)

// flagOfParameter returns the flag that set a query parameter, or the path if there is none.
func flagOfParameter(path string) string {
	if name, ok := strings.CutPrefix(path, "?"); ok {
		return "--" + strings.ReplaceAll(name, "_", "-")
	}
	return path
}

// systemHint returns what to do about an error of the operating system, or "".
func systemHint(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "'ss -ltxnp' shows the program that uses it: end that program, or choose another address."
	case errors.Is(err, store.ErrNoSpace), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "The disk is full: free some space ('df -h' shows the file systems), or name a " +
			"folder on another disk."
	case errors.Is(err, syscall.EROFS):
		return "The file system is read-only: name a folder on another one."
	case errors.Is(err, fs.ErrPermission):
		return "This user lacks the permission: use another user, perhaps root, or name another " +
			"file or folder."
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		if e, ok := errors.AsType[*fs.PathError](err); ok && !filepath.IsAbs(e.Path) {
			if dir, err := os.Getwd(); err == nil {
				return "The path is relative to the folder " + dir + "."
			}
		}
		return "Check the path."
	}
	return ""
}

// otherProgramHint describes what to do if the address belongs to another program.
func (s *Servers) otherProgramHint() string {
	return "Another program, or a proxy in front of the server, answers at " + s.FindAddresses() + ": name the " +
		"server with --addr or BERTH_ADDR."
}

// answerHint returns what to do about a server's refusal, or "" if the answer says it.
func (s *Servers) answerHint(err error) string {
	if errors.Is(err, client.ErrUncertain) {
		return "Check the result with 'berth status' before you repeat the command."
	}
	if _, ok := errors.AsType[*client.AnswerError](err); ok {
		if _, text := errors.AsType[*json.SyntaxError](err); text {
			return s.otherProgramHint()
		}
		return "The connection was cut, or the server ended: try again."
	}
	refused, ok := errors.AsType[*client.Error](err)
	if !ok {
		return ""
	}
	switch refused.Status {
	case http.StatusUnauthorized:
		return "Log in with 'berth login', or give --token-file: token in the data directory of the server, or\n" +
			"the output of 'berth token create'. BERTH_TOKEN and BERTH_TOKEN_FILE do the same."
	case http.StatusForbidden:
		return "Use a token with the needed role (--token-file): an admin creates one with 'berth token create'."
	}
	if refused.Foreign {
		return s.otherProgramHint()
	}
	return ""
}

// HintOn adds a hint to a refusal with an HTTP status. It returns other errors, and nil, as they are.
func HintOn(err error, status int, hint string) error {
	if client.StatusOf(err) == status {
		return &hinted.Error{Err: err, Hint: hint}
	}
	return err
}

// FlagErrorText returns the text of a flag error.
func FlagErrorText(cmd *cobra.Command, err error) string {
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if missing.GetSpecifiedShortnames() != "" {
			text := "unknown flag: -" + missing.GetSpecifiedName()
			if more := adviceFor(cmd, "-"+missing.GetSpecifiedName()); more != "" {
				text += ": " + more
			}
			return text
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

// suggestFlag returns advice for a flag of other systems, or a question for a known flag with a similar name.
func suggestFlag(cmd *cobra.Command, missing *pflag.NotExistError) string {
	if text := adviceFor(cmd, "--"+missing.GetSpecifiedName()); text != "" {
		return ": " + text
	}
	near := spelling.Nearest(missing.GetSpecifiedName(), func(yield func(string) bool) {
		more := true
		cmd.Flags().VisitAll(func(f *pflag.Flag) { more = more && (f.Hidden || yield(f.Name)) })
	})
	if near == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean --%s?", near)
}

// adviceFor returns what to write instead of a flag of another system, or "": for the command, or for all commands.
func adviceFor(cmd *cobra.Command, flag string) string {
	all := flagAdvice()
	return cmp.Or(all[belowRoot(cmd, flag)], all[flag])
}

// flagTypeText describes the values of a flag.
func flagTypeText(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "duration":
		return `a duration such as "30s" or "5m"`
	case "int":
		return "a whole number"
	case "uint64":
		return "a whole number, 0 or more"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	}
	_, usage := pflag.UnquoteUsage(f)
	return usage
}

// CheckFlags refuses negative durations. Commands that list several faults check their flags themselves.
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

// suggestCommand returns a question or advice for the words of other systems, or a question for a subcommand with a
// similar name. Two words together are tried first: "get pods".
func suggestCommand(cmd *cobra.Command, args ...string) string {
	for n := min(2, len(args)); n > 0; n-- {
		path := belowRoot(cmd, strings.Join(args[:n], " "))
		if meant := Synonyms()[path]; meant != "" {
			return fmt.Sprintf(": did you mean \"berth %s\"?", meant)
		}
		if text := wordAdvice()[path]; text != "" {
			return ": " + text
		}
	}
	if len(args) == 0 || isReadingWord(args[0]) {
		return ""
	}
	near := spelling.Nearest(args[0], func(yield func(string) bool) {
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() && !yield(sub.Name()) {
				return
			}
		}
	})
	if near == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %q?", cmd.CommandPath()+" "+near)
}

// belowRoot returns the path of a word of a command, without the program's name.
func belowRoot(cmd *cobra.Command, word string) string {
	return strings.TrimPrefix(cmd.CommandPath()+" "+word, cmd.Root().Name()+" ")
}
