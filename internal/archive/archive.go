// Package archive copies files and folders between machines as a tar stream, with their names, permissions, times and
// links. Neither side reads or writes outside the named folder.
//
// An archive contains one file or folder, the top, and everything below it. Names in the archive begin with the name of
// the top, or with "." if only the content of a folder is copied. The receiver trusts no name: see Unpack. Both sides
// access files through an os.Root, so links, including absolute ones, resolve as for a program with that root.
package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// ErrLeaves says that a name or a link leads out of the copied folder.
var ErrLeaves = errors.New("leads out of the copied folder")

// keptMode are the mode bits that are copied. setuid and setgid are not.
const keptMode = 0o777

// maxLinks is the longest chain of links.
const maxLinks = 40

// resolve returns the target of a path of a root, without links: "." for the root itself, otherwise without a slash at
// its beginning or end. Unless last, a link in the last place stays. A missing path below an existing folder is
// returned with an error that wraps fs.ErrNotExist.
func resolve(root *os.Root, name string, last bool) (string, error) {
	done, rest := ".", strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, part)
		info, err := root.Lstat(next)
		if err != nil {
			return path.Join(append([]string{next}, rest...)...), plain(err, name)
		}
		if info.Mode()&fs.ModeSymlink == 0 || !last && len(rest) == 0 {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return next, plain(syscall.ELOOP, name)
		}
		to, err := root.Readlink(next)
		if err != nil {
			return next, plain(err, name)
		}
		if path.IsAbs(to) {
			done = "."
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return done, nil
}

// plain names the path of the user instead of the calls that failed for it.
func plain(err error, name string) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		err = e.Err
	}
	return fmt.Errorf("%s: %w", name, err)
}
