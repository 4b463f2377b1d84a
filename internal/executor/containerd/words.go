package containerd

import (
	"context"
	"errors"
	"io"
	"regexp"
	"strings"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/plain"
)

// runtimeError is an error of containerd or its runtime, in plain words, about a fault that users can fix.
type runtimeError struct {
	text  string
	cause error
}

// Error returns the plain words.
func (e *runtimeError) Error() string { return e.text }

// Is reports whether the error is the wanted one: it is executor.ErrNoProgram if the program does not exist.
func (e *runtimeError) Is(target error) bool {
	return target == executor.ErrNoProgram && missingProgram.MatchString(e.cause.Error())
}

// Unwrap returns the error of containerd.
func (e *runtimeError) Unwrap() error { return e.cause }

// runtimeWords maps errors of the runtime about a description that does not fit its image to plain words; $1 is the
// subject.
var runtimeWords = []struct {
	said  *regexp.Regexp
	means string
}{
	{
		regexp.MustCompile(`exec: "([^"]*)": executable file not found in \$PATH`),
		`the image has no program "$1" in its PATH: correct the command, or name the program by its whole path`,
	},
	{
		regexp.MustCompile(`exec: "([^"]*)": (?:stat .*: )?(?:no such file or|not a) directory`),
		`the image has no file $1 to run: correct the command, or take an image that holds it`,
	},
	{
		regexp.MustCompile(`exec: "([^"]*)": (?:stat .*: )?(?:permission denied|is a directory)`),
		`$1 of the image cannot be run: it is a folder, or its mode does not make it a program`,
	},
	{
		regexp.MustCompile(`(?:exec (\S*): )?exec format error`),
		`the program is for another kind of machine (exec format error): take an image for this node's architecture`,
	},
	{
		regexp.MustCompile(`user: "([^"]*)": no users found`),
		`the image has no user "$1": name one of its /etc/passwd, or a number`,
	},
	{
		regexp.MustCompile(`user: "([^"]*)": .*etc/passwd: (?:file does not exist|no such file or directory)`),
		`the image has no user "$1", as it has no /etc/passwd: name a number`,
	},
	{
		regexp.MustCompile(`group: "([^"]*)": no groups found`),
		`the image has no group "$1": name one of its /etc/group, or a number`,
	},
	{
		regexp.MustCompile(`chdir to cwd \("([^"]*)"\).*: (?:no such file or directory|not a directory)`),
		`the image has no folder $1 to start in: correct dir`,
	},
	{
		regexp.MustCompile(`chdir to cwd \("([^"]*)"\).*: permission denied`),
		`the container's user may not enter the folder $1 to start in: correct dir or user`,
	},
	{
		regexp.MustCompile(`unable to set memory limit to (\d+) \(current usage: (\d+)`),
		`the memory limit of $1 bytes is too small for the program to start, which takes $2: raise resources.memory`,
	},
	{
		regexp.MustCompile(`container init was OOM-killed|memory limit too low`),
		`the memory limit is too small for the program to start: raise resources.memory`,
	},
	{ // runc and crun; Berth sets no other limit of this kind
		regexp.MustCompile(`(?:error setting rlimit type 7|setrlimit .?RLIMIT_NOFILE.?): [oO]peration not permitted`),
		`containerd may not give the program that many open files: lower resources.open_files, or raise the limit of ` +
			`the service containerd (LimitNOFILE) and fs.nr_open of the node`,
	},
	{
		regexp.MustCompile(`unrecognized image format|invalid tar header`),
		`it is no archive of images: want a tar file, as docker save or an OCI tool writes it`,
	},
}

// missingProgram matches errors of the runtime about a program that does not exist, or that its user may not run.
var missingProgram = regexp.MustCompile(`exec: "[^"]*": (?:stat .*: )?(?:executable file not found in \$PATH|` +
	`no such file or directory|not a directory|permission denied|is a directory)`)

// runtimeNoise matches the text that containerd and its runtime put around their reasons.
var runtimeNoise = regexp.MustCompile(
	`failed to create shim task: |failed to start shim: |OCI runtime (?:create|start|exec) failed: |runc (?:create|start|run) failed: |` +
		`exec failed: |unable to start container process: |error during container init: |: unknown$`)

// unreadable is the error of an archive of images that was not taken.
func unreadable(ctx context.Context, err error) error {
	if ctx.Err() == nil && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)) {
		return &runtimeError{"the archive of images is cut short, or is none: want a tar file, as docker " +
			"save or an OCI tool writes it", err}
	}
	return failed(ctx, "load images", err)
}

// describeRuntimeError translates an error of containerd into plain words; known says that they describe all of it.
func describeRuntimeError(err error) (said *runtimeError, known bool) {
	text := err.Error()
	for _, w := range runtimeWords {
		if m := w.said.FindStringSubmatchIndex(text); m != nil {
			return &runtimeError{string(w.said.ExpandString(nil, w.means, text, m)), err}, true
		}
	}
	return &runtimeError{strings.TrimSpace(runtimeNoise.ReplaceAllString(plain.Text(err), "")), err}, false
}
