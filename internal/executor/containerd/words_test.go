package containerd

import (
	"errors"
	"testing"

	"github.com/berthd/berth/internal/executor"
)

// TestPlainRuntime checks messages of runc 1.1 about containers that do not fit their image.
func TestPlainRuntime(t *testing.T) {
	t.Parallel()
	const around = "failed to create shim task: OCI runtime create failed: runc create failed: unable to " +
		"start container process: "
	for _, c := range []struct {
		said, want string
		whole      bool
	}{
		{
			around + `exec: "nosuch": executable file not found in $PATH: unknown`,
			`the image has no program "nosuch" in its PATH: correct the command, or name the program by its whole path`,
			true,
		},
		{
			"OCI runtime exec failed: exec failed: unable to start container process: " +
				`exec: "nosuch": executable file not found in $PATH: unknown`,
			`the image has no program "nosuch" in its PATH: correct the command, or name the program by its whole path`,
			true,
		},
		{
			around + `exec: "/bin/no": stat /bin/no: no such file or directory: unknown`,
			`the image has no file /bin/no to run: correct the command, or take an image that holds it`, true,
		},
		{
			around + `exec: "/etc/passwd": permission denied: unknown`,
			`/etc/passwd of the image cannot be run: it is a folder, or its mode does not make it a program`, true,
		},
		{
			around + `exec /bin/sh: exec format error: unknown`,
			`the program is for another kind of machine (exec format error): take an image for this node's architecture`, true,
		},
		{
			`user: "nobodyx": no users found`,
			`the image has no user "nobodyx": name one of its /etc/passwd, or a number`,
			true,
		},
		{
			`user: "nosuch": open /tmp/x/etc/passwd: no such file or directory`,
			`the image has no user "nosuch", as it has no /etc/passwd: name a number`, true,
		},
		{
			around + `error during container init: chdir to cwd ("/x") set in config.json failed: permission denied: unknown`,
			`the container's user may not enter the folder /x to start in: correct dir or user`, true,
		},
		{
			around + `error setting cgroup config for procHooks process: unable to set memory limit to 1048576 (current usage: 2306048, peak usage: 2510848): unknown`,
			`the memory limit of 1048576 bytes is too small for the program to start, which takes 2306048: raise resources.memory`, true,
		},
		{
			around + `error setting rlimits for ready process: error setting rlimit type 7: operation not permitted: unknown`,
			`containerd may not give the program that many open files: lower resources.open_files, or raise the limit of ` +
				`the service containerd (LimitNOFILE) and fs.nr_open of the node`, true,
		},
		{
			"archive/tar: invalid tar header",
			"it is no archive of images: want a tar file, as docker save or an OCI tool writes it", true,
		},
		{around + "error mounting x: unknown", "error mounting x", false},
	} {
		said, whole := describeRuntimeError(errors.New(c.said))
		if said.Error() != c.want || whole != c.whole {
			t.Errorf("%s:\n got %q, %t\nwant %q, %t", c.said, said, whole, c.want, c.whole)
		}
	}
	for said, want := range map[string]bool{
		around + `exec: "/bin/sh/no": stat /bin/sh/no: not a directory: unknown`:                     true,
		around + `exec: "nosuch": executable file not found in $PATH: unknown`:                       true,
		around + `exec: "/etc": is a directory: unknown`:                                             true,
		around + `exec /bin/sh: exec format error: unknown`:                                          false,
		around + `chdir to cwd ("/x") set in config.json failed: no such file or directory: unknown`: false,
	} {
		if got, _ := describeRuntimeError(errors.New(said)); errors.Is(got, executor.ErrNoProgram) != want {
			t.Errorf("%s: %q is executor.ErrNoProgram: %t, want %t", said, got, !want, want)
		}
	}
	cause := errors.New("x")
	if said, _ := describeRuntimeError(cause); !errors.Is(said, cause) {
		t.Error("the cause is lost")
	}
}
