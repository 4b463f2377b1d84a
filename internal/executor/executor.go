// Package executor is the contract between an agent and whatever runs containers
// on its machine.
//
// A container has a short life here. Prepare makes everything up to the first
// instruction of its program; Start runs that instruction, at most once; Wait tells
// how the program ended; Remove leaves nothing behind. Programs outlive the agent: an
// agent that starts anew finds them with List and waits for them again. To run a program
// again after it ended is to prepare another container, with another ID.
//
// The drivers are folders below this one; each passes executortest.
package executor

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Errors of an Executor, compared with errors.Is.
var (
	// ErrNotFound says that the executor knows no such container.
	ErrNotFound = errors.New("no such container")
	// ErrStarted says that the container was started before: its program ran, runs, or may have run.
	ErrStarted = errors.New("the container was started before")
	// ErrNotStarted says of an error of Start that the program has not run and will not, see NotStarted.
	ErrNotStarted = errors.New("the program was not started")
	// ErrNotRunning says that the program does not run, so it can take no signal and no command.
	ErrNotRunning = errors.New("the container does not run")
	// ErrUnsupported says that the spec asks for what this executor cannot do; the message names it.
	ErrUnsupported = errors.New("not supported by the executor")
	// ErrUnavailable says that the executor's daemon does not answer; the same call may work later.
	ErrUnavailable = errors.New("the executor does not answer")
	// ErrLogin says that a registry does not accept the login, or the lack of one, that Credentials returned.
	ErrLogin = errors.New("the registry does not accept the login")
)

// NotStarted marks an error of Start: it is ErrNotStarted then, and keeps its text. A driver marks only errors from
// before it wrote down that the program is about to run.
func NotStarted(err error) error { return notStarted{err} }

type notStarted struct{ error }

func (e notStarted) Is(target error) bool { return target == ErrNotStarted }
func (e notStarted) Unwrap() error        { return e.error }

// ID names one run of one container. It is a valid file name of at most 76 bytes.
type ID string

// Spec is all that a driver needs to make a container. Everything that is a reference in the
// manifest is resolved.
type Spec struct {
	ID ID
	// Labels are kept with the container and returned by List.
	Labels map[string]string
	// Container is the manifest's part: image, command, user, limits, capabilities, files, tmpfs.
	Container cluster.Container
	// Env is the whole environment beside the image's own, as "NAME=value", ordered.
	Env []string
	// Mounts are existing directories, or files, of the node.
	Mounts []Mount
	// Copies are existing files and directories of the node of which the container gets copies of its own, its user's,
	// at paths below the folder that it starts in. Container.Dir is empty where there are any. A driver of images need
	// not do that.
	Copies []Mount
	// Secrets are existing folders in memory, each with the files of secrets. The driver makes the files the
	// container's user's and shows each folder read-only, so that a file that is replaced in it is seen at once.
	Secrets []Mount
	// SecretEnv, unless empty, is a file in memory with further variables, in the form of EncodeEnv. The program, and
	// what Exec runs beside it, gets them, and the driver writes them nowhere: neither to a disk, nor to where another
	// user could read them.
	SecretEnv string
	// Rendered are existing folders with files that the agent replaces while the program runs. The driver makes the
	// files the container's user's and shows each folder read-only.
	Rendered []Mount
	// Devices are files of devices that the container may use; of those that not every container has it gets no others.
	// A driver whose programs see the machine's own files gives nothing and keeps nothing away.
	Devices []DeviceNode
	// CDI are qualified names of devices, which the driver gives as the machine's specifications say.
	CDI []string
	// CPUs and NumaNodes, unless empty, are where the container runs and has its memory, as the kernel writes lists:
	// "0-3,8".
	CPUs, NumaNodes string
	// Network, unless empty, is the file of the network namespace that the programs of the container are in; otherwise
	// it is the driver's own. It stands until Remove.
	Network string
	// Dir is a directory of the node that is the container's alone: the driver may put sockets, files and
	// work there. It exists, and the agent deletes it after Remove.
	Dir string
	// LogDir is where the driver writes the output of the program, in the form of package logs. It exists.
	LogDir string
	// Credentials returns what a registry wants for the image, or empty strings. It may be nil.
	Credentials func(registry string) (user, secret string)
}

// Mount shows a directory of the node inside a container.
type Mount struct {
	Source, Path string
	ReadOnly     bool
}

// DeviceNode shows the file of a device, or a folder of such, inside a container.
type DeviceNode struct {
	Host, Path string
}

// Process names the program of a container while it runs.
type Process struct {
	Pid int
	// PidStart is the start in clock ticks since boot (field 22 of /proc/<pid>/stat).
	PidStart uint64
	Started  time.Time
}

// State is where a container stands.
type State string

// States of a container.
const (
	StatePrepared State = "prepared"
	StateRunning  State = "running"
	StateExited   State = "exited"
	// StateUnknown is a container that was told to start, of which neither a program nor an end is known.
	StateUnknown State = "unknown"
)

// Status is a container as List shows it.
type Status struct {
	ID      ID
	Labels  map[string]string
	State   State
	Process Process       // while running
	Exit    *cluster.Exit // once exited
}

// Command is a program to run inside a running container, beside its own.
type Command struct {
	Args []string
	Env  []string
	Dir  string
	// The streams; each may be nil. Exec closes none of them.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Terminal, unless nil, has the command run on a terminal of its own: what is typed comes from Stdin, and all that
	// it shows goes to Stdout. The end of Stdin is not told.
	Terminal *Terminal
}

// Terminal is the terminal of a command.
type Terminal struct {
	Size TerminalSize
	// Resized tells of later sizes; it may be nil, and is not read any more once Exec has returned.
	Resized <-chan TerminalSize
}

// TerminalSize is how much text a terminal shows.
type TerminalSize struct{ Rows, Columns uint16 }

// Executor runs containers on this machine. All methods may be called concurrently, also for the same ID.
// Each returns soon after its context ends.
type Executor interface {
	// Probe tells the executor's name and version, or why it cannot work on this machine.
	Probe(ctx context.Context) (cluster.ExecutorFact, error)
	// Prepare makes the container up to the first instruction of its program. It may take
	// minutes (images). Progress, unless nil, is told in a few words what goes on. Preparing a
	// prepared container again is no error. What a failed Prepare left behind, Remove removes.
	Prepare(ctx context.Context, spec Spec, progress func(string)) error
	// Start runs the program. It returns ErrStarted if Start was called for this ID before, whatever became of that,
	// also in an earlier life of the agent. Of the other errors, ErrNotStarted promises that the program has not run
	// and will not. ErrUnavailable and the end of the context leave open what became of the call: the same call tells.
	// After any other error, ErrNotFound too, the program may have run: the caller removes the container and takes its
	// end for one that nobody saw.
	Start(ctx context.Context, id ID) (Process, error)
	// Wait blocks until the program has ended and tells how; for one that ended earlier it returns at
	// once. An end that nobody saw has Exit.Unknown. A restart of the executor's daemon does not end it.
	Wait(ctx context.Context, id ID) (cluster.Exit, error)
	// Signal sends a signal to the program; KILL goes to every process of the container.
	Signal(ctx context.Context, id ID, sig syscall.Signal) error
	// Remove kills what runs and removes the container; its logs stay. Removing what is not there is no error.
	Remove(ctx context.Context, id ID) error
	// List returns all containers that this executor holds for this agent, ordered by ID.
	List(ctx context.Context) ([]Status, error)
	// Exec runs a command inside a running container and returns its exit code. The end of the context
	// kills the command.
	Exec(ctx context.Context, id ID, cmd Command) (int, error)
}

// Usage is what the programs of one container use.
type Usage struct {
	// CPU is how long they have worked so far, of all CPUs together.
	CPU time.Duration
	// Memory is what they use, without the pages of files that the kernel would drop first.
	Memory cluster.Bytes
}

// Meter is what executors offer besides that can tell what containers use.
type Meter interface {
	// Usage returns what the given running containers use, by the processes that Start told of. What cannot be
	// told is left out. It asks nobody but the kernel, and so does not wait; an agent calls it every few seconds.
	Usage(running map[ID]Process) map[ID]Usage
}

// Detailer is what Meters offer besides that can tell more.
type Detailer interface {
	// Details returns what the kernel has counted of the given running containers, by the processes that Start told of.
	// What cannot be told is left out. It does not wait, and it costs some times what Usage does: an agent calls it
	// every ten seconds for each.
	Details(running map[ID]Process) map[ID]cluster.Counts
}

// Pinner is what executors offer besides that can move containers to other CPUs.
type Pinner interface {
	// Pin has all programs of a container, prepared or running, run on these CPUs ("0-3,8") from now on. Of one that is
	// not there, or runs no more, there is nothing to move, which is no error.
	Pin(ctx context.Context, id ID, cpus string) error
}

// Image is an image that an executor holds.
type Image struct {
	Name   string        `json:"name"`
	Digest string        `json:"digest"`
	Size   cluster.Bytes `json:"size"`
	// Frees is what the disk gains without it: unpacked layers too, and nothing that other images share. Used is when a
	// container was last made from it or removed, and Kept what keeps it from being removed, in a few words. Executors
	// need not tell.
	Frees cluster.Bytes `json:"frees,omitempty"`
	Used  time.Time     `json:"used,omitzero"`
	Kept  string        `json:"kept,omitempty"`
}

// ImageNamer is what executors that run images offer besides, to tell cheaply what they hold.
type ImageNamer interface {
	// ImageNames returns the names of the images held, the newest first.
	ImageNames(ctx context.Context) ([]string, error)
}

// ImageStore is what executors that run images offer besides.
type ImageStore interface {
	// LoadImages reads a tar archive of images (OCI or docker save) and returns what it held.
	LoadImages(ctx context.Context, archive io.Reader) ([]Image, error)
	// Images returns the images held, ordered by name.
	Images(ctx context.Context) ([]Image, error)
}
