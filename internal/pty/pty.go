// Package pty makes pseudo-terminals: pairs of files. One is a terminal for programs; through the other the controlling
// side types and reads the output.
package pty

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Size is the size of a terminal in characters.
type Size struct{ Rows, Columns uint16 }

// Open makes a terminal of a size. keyboard is the controlling side: its Read and Write wait without holding a thread,
// end with Close, and Read fails once no program has the terminal open any more. terminal is for the program. The
// caller closes both.
func Open(s Size) (keyboard, terminal *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a terminal: open /dev/ptmx: %w", err)
	}
	keyboard = os.NewFile(uintptr(fd), "/dev/ptmx")
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = SetSize(keyboard, s)
	}
	if err == nil {
		terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = keyboard.Close()
		return nil, nil, fmt.Errorf("make a terminal: %w", err)
	}
	return keyboard, terminal, nil
}

// SetSize changes the size of a terminal, by either of its files; its programs get WINCH.
func SetSize(f *os.File, s Size) error {
	return control(f, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Columns})
	})
}

// control does something with a file's descriptor, which stays as it is: File.Fd would have it wait with a thread.
func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var done error
	if err := raw.Control(func(fd uintptr) { done = do(int(fd)) }); err != nil {
		return err
	}
	return done
}
