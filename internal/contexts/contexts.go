// Package contexts keeps the control planes that a person works with: their addresses and how to reach them.
//
// All contexts are in one file of the user's configuration folder, which only the user may read, because it may hold
// tokens. A change reads the file, changes it and replaces it as a whole under a lock, so that several commands may
// change it at the same time and a crash leaves the old or the new file.
package contexts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Context is one control plane.
type Context struct {
	Name string `json:"name"`
	// Addresses are those of the servers, which are tried in turn.
	Addresses []string `json:"addresses"`
	// Token is sent to the servers. TokenFile is a file with the token instead.
	Token     string `json:"token,omitempty"`
	TokenFile string `json:"token_file,omitempty"`
	// CAHash is the SHA-256 of the certificate of the servers' authority, in hex. CAFile is a file with the certificate
	// instead.
	CAHash string `json:"ca_hash,omitempty"`
	CAFile string `json:"ca_file,omitempty"`
	// Cluster is that of names without a cluster, and of lists; "" is the default cluster for names, and all for lists.
	Cluster string `json:"cluster,omitempty"`
	// Dev is the data directory of the `berth dev` that wrote the context, and removes it at its end.
	Dev string `json:"dev,omitempty"`
}

// File is the content of the file. Contexts are sorted by name.
type File struct {
	// Current is the name of the context that commands use if they name none; it may be empty.
	Current  string    `json:"current,omitempty"`
	Contexts []Context `json:"contexts"`
}

// Path returns the path of the file, which may not exist.
func Path() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the configuration folder: %w", err)
	}
	return filepath.Join(dir, "berth", "contexts.json"), nil
}

// Load reads a file. A file that does not exist has no contexts.
func Load(path string) (File, error) {
	var f File
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, fmt.Errorf("read the contexts: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return File{}, fmt.Errorf("read the contexts: %s: %w", path, err)
	}
	return f, nil
}

// Find returns the context of a name.
func (f *File) Find(name string) (Context, bool) {
	i := slices.IndexFunc(f.Contexts, func(c Context) bool { return c.Name == name })
	if i < 0 {
		return Context{}, false
	}
	return f.Contexts[i], true
}

// Names returns the names of all contexts.
func (f *File) Names() []string {
	names := make([]string, len(f.Contexts))
	for i := range f.Contexts {
		names[i] = f.Contexts[i].Name
	}
	return names
}

// Set adds a context, or replaces that of its name.
func (f *File) Set(c Context) {
	f.Contexts = slices.DeleteFunc(f.Contexts, func(old Context) bool { return old.Name == c.Name })
	f.Contexts = append(f.Contexts, c)
	slices.SortFunc(f.Contexts, func(a, b Context) int { return cmp.Compare(a.Name, b.Name) })
}

// Remove removes the context of a name, if there is one. If it is the current one, there is no current one any more.
func (f *File) Remove(name string) {
	f.Contexts = slices.DeleteFunc(f.Contexts, func(c Context) bool { return c.Name == name })
	if f.Current == name {
		f.Current = ""
	}
}

// Update changes a file and creates it if it does not exist. It writes nothing if change returns an error.
func Update(path string, change func(*File) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	defer lock.Close()
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return fmt.Errorf("write the contexts: lock %s: %w", lock.Name(), err)
	}
	f, err := Load(path)
	if err != nil {
		return err
	}
	if err := change(&f); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	return replace(path, append(raw, '\n'))
}

// replace writes a file beside path and renames it to path.
func replace(path string, raw []byte) error {
	next, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	_, err = next.Write(raw)
	if err == nil {
		err = next.Sync()
	}
	err = errors.Join(err, next.Close())
	if err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		_ = os.Remove(next.Name()) // what failed is reported
		return fmt.Errorf("write the contexts: %w", err)
	}
	return nil
}
