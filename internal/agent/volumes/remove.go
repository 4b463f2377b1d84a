package volumes

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// remove removes a volume that no task uses. Its name is free immediately; its files are removed in the background. It
// calls describe once, with the volume and the tasks that use the volumes of the node.
func (s *Store) remove(key string,
	describe func(k *keptVolume, users map[string][]cluster.TaskID) *transport.Volume,
) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.kept()
	i := slices.IndexFunc(all, func(k keptVolume) bool { return k.key == key })
	if i < 0 {
		return fmt.Errorf("it has no volume %s", key)
	}
	k := &all[i]
	v := describe(k, s.users())
	if len(v.By) > 0 {
		return fmt.Errorf("volume %s is in use by task %s: stop the task first", key, v.By[0])
	}
	if mounted, err := mountBelow(k.dir); err != nil || mounted != "" {
		return cmp.Or(err, fmt.Errorf("a file system is mounted at %s, which would be emptied: unmount it first",
			mounted))
	}
	if err := os.MkdirAll(s.bin(), 0o700); err != nil {
		return err
	}
	// The lock on mu makes the name unique.
	if err := os.Rename(k.dir, filepath.Join(s.bin(), strconv.FormatInt(time.Now().UnixNano(), 36))); err != nil {
		return err
	}
	owner := filepath.Dir(k.dir)
	for _, file := range []string{noteFile(k.dir), filepath.Join(owner, pinMark(filepath.Base(k.dir)))} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			s.Node.Logger.Warn("a note of a removed volume is left", "file", file, "error", err)
		}
	}
	if os.Remove(owner) == nil { // the owner has no other volume
		_ = os.Remove(filepath.Dir(owner)) // the cluster has no other owner
	}
	s.Node.Logger.Info("a volume was removed on request", "volume", key, "last", v.Last, "size", v.Used.String())
	s.Changed()
	s.Node.Go(s.emptyBin)
	return nil
}

// bin is the folder of removed volumes whose files still exist.
func (s *Store) bin() string { return filepath.Join(s.Folders.root, ".removed") }

// emptyBin removes the files of removed volumes.
func (s *Store) emptyBin() {
	entries, err := os.ReadDir(s.bin())
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.bin(), e.Name())))
	}
	if err != nil {
		s.Node.Logger.Warn("files of removed volumes are left; it is tried again when the next one is removed, "+
			"or the agent begins", "folder", s.bin(), "error", err)
	}
}

// mountBelow returns a mount point at or below a folder, or "".
func mountBelow(dir string) (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer f.Close() // opened for reading only
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if parts := strings.Fields(lines.Text()); len(parts) > 4 &&
			cluster.PathWithin(unescape.Replace(parts[4]), []string{dir}) {
			return unescape.Replace(parts[4]), nil
		}
	}
	return "", lines.Err()
}
