// Package executor is the contract between an agent and whatever runs containers
// on its machine.
//
// A container has a short life here. Prepare makes everything up to the first instruction of its program; Start runs
// that instruction, at most once; Wait returns the end of the program; Remove leaves nothing behind. Programs outlive
// the agent: an agent that restarts finds them with List and waits for them again. To run a program again after it
// ended is to prepare another container, with another ID.
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
	// ErrNotFound says that the executor has no such container.
	ErrNotFound = errors.New("no such container")
	// ErrStarted says that the container was started before: its program ran, runs, or may have run.
	ErrStarted = errors.New("the container was started before")
	// ErrNotStarted says of an error of Start that the program has not run and will not, see NotStarted.
	ErrNotStarted = errors.New("the program was not started")
	// ErrNoProgram says of an error of Prepare or Start that the program does not exist, or cannot be run by its user,
	// see NoProgram. It has not run, and another try on this machine is of no use before somebody changes that.
	ErrNoProgram = errors.New("there is no such program")
	// ErrNotRunning says that the program does not run, so no signal and no command can reach it.
	ErrNotRunning = errors.New("the container does not run")
	// ErrUnsupported says that this executor cannot satisfy the spec; the message names the field.
	ErrUnsupported = errors.New("not supported by the executor")
	// ErrUnavailable says that the executor's daemon does not answer. A later call may succeed.
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

// NoProgram marks an error of Prepare or Start: it is ErrNoProgram then, and keeps its text. The text names the program
// and where it was searched.
func NoProgram(err error) error { return noProgram{err} }

type noProgram struct{ error }

func (e noProgram) Is(target error) bool { return target == ErrNoProgram }
func (e noProgram) Unwrap() error        { return e.error }

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
	// Env is the whole environment besides the image's own, as "NAME=value", ordered.
	Env []string
	// Mounts are existing directories, or files, of the node.
	Mounts []Mount
	// Copies are files and directories of the node that the container gets as private copies, owned by its user, below
	// its working folder. Container.Dir is then empty. Drivers of images need not support them.
	Copies []Mount
	// Secrets are existing folders in memory, each with the files of secrets. The driver makes the files the
	// container's user's and shows each folder read-only, so that a file that is replaced in it is seen immediately.
	Secrets []Mount
	// SecretEnv, unless empty, is a file in memory with further variables, in the form of EncodeEnv. The program and
	// the commands of Exec get them. The driver writes them neither to a disk nor to a place that another user can
	// read.
	SecretEnv string
	// Rendered are existing folders with files that the agent replaces while the program runs. The driver makes the
	// files the container's user's and shows each folder read-only.
	Rendered []Mount
	// Devices are device files that the container may use, besides the files that every container has. A driver whose
	// programs see the machine's own files neither adds nor removes any.
	Devices []DeviceNode
	// CDI are qualified names of devices, which the driver gives as the machine's specifications say.
	CDI []string
	// CPUs and NumaNodes, unless empty, are where the container runs and has its memory, as the kernel writes lists:
	// "0-3,8".
	CPUs, NumaNodes string
	// Network, unless empty, is the file of the network namespace for the programs of the container. It exists until
	// Remove. Without it the driver chooses.
	Network string
	// Dir is a private directory of the container on the node, for sockets, files and work of the driver. It exists,
	// and the agent deletes it after Remove.
	Dir string
	// LogDir is the directory for the program's output, in the form of package logs. It exists.
	LogDir string
	// Credentials returns the login for a registry, or empty strings. It may be nil.
	Credentials func(registry string) (user, secret string)
	// ImageArchive, unless nil, has the image of the container. The driver then asks no registry, and does not use an
	// image of the same name from elsewhere.
	ImageArchive *ImageArchive
}

// ImageArchive is an archive with an image, as LoadImages of ImageStore takes it.
type ImageArchive struct {
	// Checksum identifies the archive.
	Checksum string
	// Open returns the content of the archive, which it may fetch with messages of its progress. A driver that has the
	// image does not call it.
	Open func(ctx context.Context, progress func(string)) (io.ReadCloser, error)
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

// State is the state of a container.
type State string

// States of a container.
const (
	StatePrepared State = "prepared"
	StateRunning  State = "running"
	StateExited   State = "exited"
	// StateUnknown is a container after Start whose program is neither running nor known to have ended.
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

// Command is a program to run inside a running container, beside its own program.
type Command struct {
	Args []string
	Env  []string
	Dir  string
	// The streams; each may be nil. Exec closes none of them.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Terminal, unless nil, runs the command on a terminal of its own. Input comes from Stdin, and all output goes to
	// Stdout. The end of Stdin is not passed on.
	Terminal *Terminal
}

// Terminal is the terminal of a command.
type Terminal struct {
	Size TerminalSize
	// Resized delivers later sizes. It may be nil, and is not read after Exec has returned.
	Resized <-chan TerminalSize
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct{ Rows, Columns uint16 }

// Executor runs containers on this machine. All methods may be called concurrently, also for the same ID.
// Each returns soon after its context ends.
type Executor interface {
	// Probe returns the executor's name and version, or why it cannot work on this machine.
	Probe(ctx context.Context) (cluster.ExecutorFact, error)
	// Prepare makes the container up to the first instruction of its program. It may take minutes, for images.
	// progress, unless nil, receives short descriptions of the current activity. Preparing a prepared container again
	// is no error. Remove also removes the remains of a failed Prepare.
	//
	// ErrNoProgram promises that the program has not run. A driver that learns of it at the start only returns it from
	// Start.
	Prepare(ctx context.Context, spec Spec, progress func(string)) error
	// Start runs the program. It returns ErrStarted if Start was called for this ID before, whatever its result, also
	// in an earlier life of the agent. ErrNotStarted and ErrNoProgram promise that the program has not run and will
	// not. After ErrUnavailable and the end of the context the result is open; a repeated call returns it. After any
	// other error, ErrNotFound too, the program may have run: the caller removes the container and treats its end as
	// unknown.
	Start(ctx context.Context, id ID) (Process, error)
	// Wait blocks until the program has ended and returns its exit; for an earlier exit it returns immediately. An exit
	// that was not observed has Exit.Unknown. Wait survives restarts of the executor's daemon.
	Wait(ctx context.Context, id ID) (cluster.Exit, error)
	// Signal sends a signal to the program. KILL goes to every process of the container.
	Signal(ctx context.Context, id ID, sig syscall.Signal) error
	// Remove kills the container's processes and removes it; its logs stay. Removing a missing container is no error.
	Remove(ctx context.Context, id ID) error
	// List returns all containers that this executor holds for this agent, ordered by ID.
	List(ctx context.Context) ([]Status, error)
	// Exec runs a command inside a running container and returns its exit code. The end of the context
	// kills the command.
	Exec(ctx context.Context, id ID, cmd Command) (int, error)
}

// Usage is the resource usage of one container's programs.
type Usage struct {
	// CPU is the processor time so far, summed over all CPUs.
	CPU time.Duration
	// Memory is the used memory without file pages that the kernel would reclaim first.
	Memory cluster.Bytes
}

// Meter is an optional interface of executors that can measure containers.
type Meter interface {
	// Usage returns the resource usage of running containers, by the processes that Start returned. Containers that
	// cannot be measured are left out. It reads only kernel files, and so does not block; an agent calls it every few
	// seconds.
	Usage(running map[ID]Process) map[ID]Usage
}

// Detailer is an optional interface of Meters that can measure more.
type Detailer interface {
	// Details returns the kernel's counters of running containers, by the processes that Start returned. Containers
	// that cannot be measured are left out. It does not block. It costs several times as much as Usage: an agent calls
	// it every ten seconds for each container.
	Details(running map[ID]Process) map[ID]cluster.Counts
}

// Pinner is an optional interface of executors that can move containers to other CPUs.
type Pinner interface {
	// Pin moves all programs of a container, prepared or running, to these CPUs ("0-3,8"). For a missing or ended
	// container it does nothing, without an error.
	Pin(ctx context.Context, id ID, cpus string) error
}

// Image is an image that an executor holds.
type Image struct {
	Name   string        `json:"name"`
	Digest string        `json:"digest"`
	Size   cluster.Bytes `json:"size"`
	// Frees is the disk space that its removal would free, with unpacked layers and without content that other images
	// share. Used is when a container was last made from it or removed. Kept is why it cannot be removed. Executors may
	// leave them empty.
	Frees cluster.Bytes `json:"frees,omitempty"`
	Used  time.Time     `json:"used,omitzero"`
	Kept  string        `json:"kept,omitempty"`
}

// ImageNamer is an optional interface of executors that run images, for a cheap list of their images.
type ImageNamer interface {
	// ImageNames returns the names of the images held, the newest first.
	ImageNames(ctx context.Context) ([]string, error)
}

// ImageStore is an optional interface of executors that run images.
type ImageStore interface {
	// LoadImages reads a tar archive of images (OCI or docker save) and returns what it held.
	LoadImages(ctx context.Context, archive io.Reader) ([]Image, error)
	// Images returns the images held, ordered by name.
	Images(ctx context.Context) ([]Image, error)
}
