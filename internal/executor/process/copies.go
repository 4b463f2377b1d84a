package process

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// makeCopies makes the container's own copies in its working folder. The program has not run: nothing in the folder
// leads elsewhere.
func (p *plan) makeCopies() error {
	work := filepath.Join(p.specDir, "work")
	for _, c := range p.copies {
		if !p.ownDir || !filepath.IsLocal(c.Path) {
			return unsupported("artifacts",
				fmt.Sprintf("%q is not a path below the folder that the program starts in", c.Path))
		}
		to := filepath.Join(work, c.Path)
		if to != work { // what an earlier Prepare made of it
			if err := os.RemoveAll(to); err != nil {
				return fmt.Errorf("copy to %s: %w", c.Path, err)
			}
		}
		if err := p.ownFolders(work, filepath.Dir(c.Path)); err != nil {
			return fmt.Errorf("copy to %s: %w", c.Path, err)
		}
		if err := p.copyTree(c.Source, to); err != nil {
			return fmt.Errorf("copy to %s: %w", c.Path, err)
		}
	}
	return nil
}

// ownFolders makes the folders of a path below a folder, the user's own.
func (p *plan) ownFolders(root, rel string) error {
	if rel == "." {
		return nil
	}
	if err := p.ownFolders(root, filepath.Dir(rel)); err != nil {
		return err
	}
	name := filepath.Join(root, rel)
	if err := os.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return p.own(name)
}

func (p *plan) copyTree(from, to string) error {
	return filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case e.IsDir():
			if err := os.Mkdir(target, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		case e.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(name)
			if err != nil {
				return err
			}
			if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if err := os.Symlink(link, target); err != nil { //nolint:gosec // nobody else is in a run's folder before its program begins
				return err
			}
			if os.Geteuid() != 0 {
				return nil
			}
			return os.Lchown(target, p.User.UID, p.User.GID)
		default:
			if err := copyFile(name, target); err != nil {
				return err
			}
		}
		return p.own(target)
	})
}

// copyFile copies a file with its mode and its modification time, which programs compare.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Chmod(info.Mode().Perm())
	}
	err = errors.Join(err, out.Close())
	if err != nil {
		return err
	}
	return os.Chtimes(to, info.ModTime(), info.ModTime())
}
