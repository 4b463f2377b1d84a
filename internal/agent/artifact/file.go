package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/cluster"
)

// openFile opens a file of the node for reading, as findWithin finds it.
func openFile(path string, lent []string) (source, error) {
	root, name, err := findWithin(path, lent)
	if err != nil {
		return source{}, err
	}
	defer root.Close()
	// without waiting for the other end of a pipe
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return source{}, fmt.Errorf("%w: %w", errPermanent, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is not a regular file", errPermanent, path)
	}
	if err != nil {
		_ = f.Close() // opened for reading only
		return source{}, err
	}
	return source{f, 0, info.Size()}, nil
}

// findWithin returns a folder that the node lends, and the name of a path below it. The path must be below such a
// folder before and after all links in it are resolved. The caller opens the name within the folder, so a link that is
// changed in the meantime leads nowhere else. The caller closes the folder.
func findWithin(path string, lent []string) (folder *os.Root, name string, err error) {
	if !cluster.PathWithin(path, lent) {
		return nil, "", fmt.Errorf("%w: the node does not share %s with tasks: allow it there with --host-path",
			errPermanent, path)
	}
	direct, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("%w: the node has no file %s", errPermanent, path)
	}
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", errPermanent, err)
	}
	for _, at := range lent {
		at, err := filepath.EvalSymlinks(at)
		if err != nil || !cluster.PathWithin(direct, []string{at}) {
			continue
		}
		if info, err := os.Stat(at); err == nil && !info.IsDir() { // the file itself is lent
			at = filepath.Dir(at)
		}
		name, err := filepath.Rel(at, direct)
		if err == nil {
			folder, err = os.OpenRoot(at)
		}
		if err != nil {
			return nil, "", fmt.Errorf("%w: %w", errPermanent, err)
		}
		return folder, name, nil
	}
	return nil, "", fmt.Errorf("%w: %s is a link to %s, which the node does not share with tasks", errPermanent, path,
		direct)
}
