package agent

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/diskuse"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// How often what volumes take is counted: never more often than countEvery, and so rarely that it is a twentieth of the
// time at most, up to countRarely; but where somebody looks, and it is quickly done, after countAsked. The volumes are
// looked through each countLook.
const (
	countLook   = 5 * time.Second
	countAsked  = 5 * time.Second
	countEvery  = 30 * time.Second
	countRarely = time.Hour
	countQuick  = time.Second
	countShare  = 20
)

// volumes is what the agent knows of the volumes of the node.
type volumes struct {
	// mu is held while volumes are made, removed and noted, so that none is removed that an attempt has just found.
	mu      sync.Mutex
	trouble map[string]string // what was said of host volumes that are not there

	sizes  sync.Mutex
	known  map[string]volumeSize // by folder
	asked  time.Duration         // when somebody last asked (Boot), 0 for never
	wanted chan struct{}         // capacity 1
}

// volumeSize is what was last found out of a volume's folder.
type volumeSize struct {
	used, size, free cluster.Bytes
	at               time.Time
	due              time.Duration // Boot
	quick            bool
	trouble          string
}

func (v *volumes) begin() {
	v.trouble, v.known, v.wanted = map[string]string{}, map[string]volumeSize{}, make(chan struct{}, 1)
}

func (v *volumes) sizeOf(dir string) (volumeSize, bool) {
	v.sizes.Lock()
	defer v.sizes.Unlock()
	s, ok := v.known[dir]
	return s, ok
}

// watchVolumes removes what an earlier life of the agent did not remove to the end, and counts what volumes take, one
// after the other, until ctx ends.
func (a *Agent) watchVolumes(ctx context.Context) {
	a.emptyBin()
	for {
		a.countVolumes(ctx)
		timer := time.NewTimer(countLook)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-a.volumes.wanted:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// countVolumes counts what those volumes take that are due.
func (a *Agent) countVolumes(ctx context.Context) {
	all := a.keptVolumes()
	there := make(map[string]bool, len(all))
	for i := range all {
		dir := all[i].dir
		there[dir] = true
		s, _ := a.volumes.sizeOf(dir)
		began := a.Boot()
		a.volumes.sizes.Lock()
		asked := a.volumes.asked
		a.volumes.sizes.Unlock()
		if wanted := s.quick && asked != 0 && asked > s.due-countEvery+countAsked; began < s.due && !wanted {
			continue
		}
		use, err := diskuse.Count(ctx, dir)
		if ctx.Err() != nil {
			return
		}
		now, trouble := a.Boot(), ""
		if err == nil {
			s.used, s.at = use.Bytes, time.Now()
			s.size, s.free, err = diskuse.Room(dir)
		}
		if err != nil {
			if trouble = err.Error(); trouble != s.trouble {
				a.Logger.Info("what a volume takes is not known", "volume", dir, "error", err)
			}
		}
		took := now - began
		s.trouble, s.quick, s.due = trouble, took < countQuick, now+min(max(countShare*took, countEvery), countRarely)
		a.volumes.sizes.Lock()
		a.volumes.known[dir] = s
		a.volumes.sizes.Unlock()
	}
	a.volumes.sizes.Lock()
	defer a.volumes.sizes.Unlock()
	for dir := range a.volumes.known { // order-free: each by itself
		if !there[dir] {
			delete(a.volumes.known, dir)
		}
	}
}

// storage returns what the volumes of an attempt take that the agent keeps, or before where that is the same; nil where
// it has none.
func (a *Agent) storage(v *view, before *cluster.StorageUse) *cluster.StorageUse {
	if v.def == nil || a.Volatile {
		return nil
	}
	var s cluster.StorageUse
	for i := range v.def.Volumes {
		volume := &v.def.Volumes[i]
		if !volume.Kept() {
			continue
		}
		dir, _, err := a.volumeDir(&v.rec.Desired, volume)
		if found, ok := a.volumes.sizeOf(dir); ok && err == nil {
			s.Volumes = append(s.Volumes,
				cluster.VolumeUse{
					Name: volume.Name, Used: found.used, Size: found.size, Free: found.free,
					At: found.at,
				})
		}
	}
	switch {
	case len(s.Volumes) == 0:
		return nil
	case before != nil && slices.Equal(s.Volumes, before.Volumes):
		return before
	}
	return &s
}

// volumeUsers returns the tasks that use or will use a volume, by its folder, and by the folder of an owner those of
// which it is not known which they use. Attempts of which nothing is left use none.
func (a *Agent) volumeUsers() (users map[string][]cluster.TaskID) {
	users = map[string][]cluster.TaskID{}
	add := func(dir string, id cluster.TaskID) {
		if !slices.Contains(users[dir], id) {
			users[dir] = append(users[dir], id)
		}
	}
	for _, t := range a.attempts() {
		v := t.view.Load()
		if v != nil && v.rec.Phase == attempt.PhaseGone {
			continue
		}
		def := t.currentDefinition()
		parts, ok := t.id.Parts()
		if def == nil || v == nil {
			if ok {
				add(filepath.Join(a.volumeRoot(), parts.Cluster, parts.Owner), t.id)
			}
			continue
		}
		for i := range def.Volumes {
			if dir, _, err := a.volumeDir(&v.rec.Desired, &def.Volumes[i]); err == nil {
				add(dir, t.id)
			}
		}
	}
	a.found.mu.Lock()
	defer a.found.mu.Unlock()
	for _, orphans := range a.found.orphans { // order-free: sorted below; they may run, and what they use nobody knows
		for _, o := range orphans {
			id := cluster.TaskID(o.status.Labels[labelTask])
			if parts, ok := id.Parts(); ok {
				add(filepath.Join(a.volumeRoot(), parts.Cluster, parts.Owner), id)
			}
		}
	}
	for dir := range users { // order-free: each by itself
		slices.Sort(users[dir])
	}
	return users
}

// serveVolumes does what the stream asks of the node's volumes, and answers with what came of it.
func (a *Agent) serveVolumes(ctx context.Context, r transport.StreamRequest, stream io.ReadWriter) error {
	frames := transport.NewFrameWriter(stream)
	out, err := a.volumesFor(ctx, r)
	if err != nil {
		return errors.Join(err, frames.End(transport.ExecEnd{Error: err.Error()}))
	}
	if err := json.NewEncoder(frames.Channel(transport.ChannelStdout)).Encode(out); err != nil {
		return err
	}
	return frames.End(transport.ExecEnd{})
}

func (a *Agent) volumesFor(ctx context.Context, r transport.StreamRequest) (any, error) {
	switch {
	case a.Volatile:
		return nil, errors.New("the agent of this node keeps no volumes")
	case r.Kind == transport.StreamVolumeRemove:
		v, err := a.removeVolume(r.Volume)
		return []transport.Volume{v}, err
	}
	a.volumes.sizes.Lock()
	a.volumes.asked = a.Boot()
	a.volumes.sizes.Unlock()
	select {
	case a.volumes.wanted <- struct{}{}:
	default:
	}
	return a.listVolumes(ctx), nil
}

// listVolumes returns the volumes that the agent keeps, then those that the node declares. Of the latter nobody counts
// the files: they may be anything.
func (a *Agent) listVolumes(context.Context) []transport.Volume {
	users := a.volumeUsers()
	all := []transport.Volume{}
	for _, k := range a.keptVolumes() {
		all = append(all, a.wireVolume(&k, users))
	}
	declared := slices.Clone(a.HostVolumes)
	slices.SortFunc(declared, func(x, y HostVolume) int { return cmp.Compare(x.Name, y.Name) })
	for _, h := range declared {
		v := transport.Volume{HostVolume: h.Name, Path: h.Path, ReadOnly: h.ReadOnly}
		if direct, err := realDir(h.Path); err == nil {
			v.By = users[direct]
			v.Size, v.Free, _ = diskuse.Room(direct) // it went away, then
		}
		all = append(all, v)
	}
	return all
}

func (a *Agent) wireVolume(k *keptVolume, users map[string][]cluster.TaskID) transport.Volume {
	s, _ := a.volumes.sizeOf(k.dir)
	v := transport.Volume{
		Key: k.key, Path: k.dir, Pin: k.pinned, Sticky: k.note.Sticky, Used: s.used, At: s.at, Size: s.size,
		Free: s.free,
		By:   slices.Concat(users[k.dir], users[filepath.Dir(k.dir)]), Last: k.note.Task, Until: k.note.Used,
	}
	if v.Size == 0 {
		v.Size, v.Free, _ = diskuse.Room(k.dir) // it went away, then
	}
	if info, err := os.Stat(k.dir); err == nil && v.Until.IsZero() {
		v.Until = info.ModTime()
	}
	return v
}

// removeVolume removes a volume that no task uses. It is gone at once, under that name; its files go behind.
func (a *Agent) removeVolume(key string) (v transport.Volume, err error) {
	a.volumes.mu.Lock()
	defer a.volumes.mu.Unlock()
	all := a.keptVolumes()
	i := slices.IndexFunc(all, func(k keptVolume) bool { return k.key == key })
	if i < 0 {
		return v, fmt.Errorf("it keeps no volume %s", key)
	}
	k := &all[i]
	v = a.wireVolume(k, a.volumeUsers())
	if len(v.By) > 0 {
		return v, fmt.Errorf("the volume %s is in use by task %s: stop it first", key, v.By[0])
	}
	if mounted, err := mountBelow(k.dir); err != nil || mounted != "" {
		return v, cmp.Or(err, fmt.Errorf("something is mounted at %s, which would be emptied: unmount it first",
			mounted))
	}
	if err := os.MkdirAll(a.volumeBin(), 0o700); err != nil {
		return v, err
	}
	// volumes.mu is held: no two at a time
	if err := os.Rename(k.dir, filepath.Join(a.volumeBin(), strconv.FormatInt(time.Now().UnixNano(), 36))); err != nil {
		return v, err
	}
	owner := filepath.Dir(k.dir)
	for _, file := range []string{noteFile(k.dir), filepath.Join(owner, pinMark(filepath.Base(k.dir)))} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			a.Logger.Warn("a note of a removed volume is left", "file", file, "error", err)
		}
	}
	if os.Remove(owner) == nil { // it held no other volume
		_ = os.Remove(filepath.Dir(owner)) // nor the cluster another owner's
	}
	a.Logger.Info("a volume was removed, as somebody asked", "volume", key, "last", v.Last, "size", v.Used.String())
	a.machine.lookAgain()
	a.work.Go(a.emptyBin)
	return v, nil
}

// volumeBin is where volumes are that were removed and whose files are not gone yet.
func (a *Agent) volumeBin() string { return filepath.Join(a.volumeRoot(), ".removed") }

// emptyBin removes what is left of volumes that were removed.
func (a *Agent) emptyBin() {
	entries, err := os.ReadDir(a.volumeBin())
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(a.volumeBin(), e.Name())))
	}
	if err != nil {
		a.Logger.Warn("files of removed volumes are left; it is tried again when the next one is removed, "+
			"or the agent begins", "folder", a.volumeBin(), "error", err)
	}
}

// mountBelow returns a place at or below a folder where something is mounted, or "".
func mountBelow(dir string) (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer f.Close() // it was only read
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
