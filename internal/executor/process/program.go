package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// programName is the name of the file in memory that supervisors run.
const programName = "berth-supervisor"

// openProgram returns a sealed file in memory with the program of supervisors. It fails where the machine does not run
// such files.
func openProgram(program string) (*os.File, error) {
	if program == "" {
		return nil, errors.New("there is no program for supervisors")
	}
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(programName, flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // a kernel before 6.3
		fd, err = unix.MemfdCreate(programName, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), programName)
	_, err = io.WriteString(f, program)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS,
			unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err == nil {
		err = tryProgram(f)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("program of supervisors: %w", err), f.Close())
	}
	return f, nil
}

// tryLimit bounds the trial of the program, which takes milliseconds.
const tryLimit = 10 * time.Second

// tryProgram runs the program without arguments, which it refuses.
func tryProgram(f *os.File) error {
	ctx, cancel := context.WithTimeout(context.Background(), tryLimit)
	defer cancel()
	err := exec.CommandContext(ctx, programPath(f)).Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() == exitUsage {
		return nil
	}
	return fmt.Errorf("it does not run: %w", err)
}

// programPath names the file for other processes, as long as this process has it open.
func programPath(f *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()) }

// supervisorPath returns the file that supervisors run.
func (e *Executor) supervisorPath() string {
	if f, err := e.program(); err == nil {
		return programPath(f)
	}
	return e.cfg.Executable
}
