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

// Intervals between two counts of a volume's use. minCountInterval is the shortest, maxCountInterval the longest. In
// between, countPauseFactor keeps counting to a twentieth of the time. If a user asks for the volumes and the count
// takes less than quickCountTime, requestedCountInterval is enough. The volumes are checked every volumeCheckInterval.
const (
	volumeCheckInterval    = 5 * time.Second
	requestedCountInterval = 5 * time.Second
	minCountInterval       = 30 * time.Second
	maxCountInterval       = time.Hour
	quickCountTime         = time.Second
	countPauseFactor       = 20
)

// volumes is the state of the node's volumes.
type volumes struct {
	// mu is held while volumes are made, removed and noted, so that no volume is removed that an attempt has just
	// found.
	mu      sync.Mutex
	trouble map[string]string // logged problems of missing host volumes

	sizes  sync.Mutex
	known  map[string]volumeSize // by folder
	asked  time.Duration         // when a user last asked (Boot), 0 for never
	wanted chan struct{}         // capacity 1
}

// volumeSize is the newest count of a volume's folder.
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

// watchVolumes completes the removals that an earlier run of the agent left unfinished, and counts the use of volumes,
// one after the other, until ctx ends.
func (a *Agent) watchVolumes(ctx context.Context) {
	a.emptyBin()
	for {
		a.countVolumes(ctx)
		timer := time.NewTimer(volumeCheckInterval)
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

// countVolumes counts the use of the volumes that are due.
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
		wanted := s.quick && asked != 0 && asked > s.due-minCountInterval+requestedCountInterval
		if began < s.due && !wanted {
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
				a.Logger.Info("the use of a volume cannot be counted", "volume", dir, "error", err)
			}
		}
		took := now - began
		s.trouble, s.quick = trouble, took < quickCountTime
		s.due = now + min(max(countPauseFactor*took, minCountInterval), maxCountInterval)
		a.volumes.sizes.Lock()
		a.volumes.known[dir] = s
		a.volumes.sizes.Unlock()
	}
	a.volumes.sizes.Lock()
	defer a.volumes.sizes.Unlock()
	for dir := range a.volumes.known { // order-free: volumes are independent
		if !there[dir] {
			delete(a.volumes.known, dir)
		}
	}
}

// volumeUse returns the use of the attempt's volumes that the agent keeps, or before if that is the same; nil if it has
// none.
func (a *Agent) volumeUse(v *view, before *cluster.StorageUse) *cluster.StorageUse {
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

// volumeUsers returns the tasks that use or will use a volume, by its folder. A task with unknown volumes is listed
// under the folder of its owner. Attempts with nothing left use none.
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
	a.orphans.mu.Lock()
	defer a.orphans.mu.Unlock()
	for _, orphans := range a.orphans.byUUID { // order-free: sorted below; orphans may run and use any volume
		for _, o := range orphans {
			id := cluster.TaskID(o.status.Labels[labelTask])
			if parts, ok := id.Parts(); ok {
				add(filepath.Join(a.volumeRoot(), parts.Cluster, parts.Owner), id)
			}
		}
	}
	for dir := range users { // order-free: volumes are independent
		slices.Sort(users[dir])
	}
	return users
}

// serveVolumes performs the stream's request on the node's volumes and sends the result.
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

// listVolumes returns the volumes that the agent keeps, then those that the node declares. Files of declared volumes
// are not counted: such a folder can be anything.
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
			v.Size, v.Free, _ = diskuse.Room(direct) // it has disappeared
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
		v.Size, v.Free, _ = diskuse.Room(k.dir) // it has disappeared
	}
	if info, err := os.Stat(k.dir); err == nil && v.Until.IsZero() {
		v.Until = info.ModTime()
	}
	return v
}

// removeVolume removes a volume that no task uses. Its name is free at once; its files are removed in the background.
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
	// The lock on volumes.mu makes the name unique.
	if err := os.Rename(k.dir, filepath.Join(a.volumeBin(), strconv.FormatInt(time.Now().UnixNano(), 36))); err != nil {
		return v, err
	}
	owner := filepath.Dir(k.dir)
	for _, file := range []string{noteFile(k.dir), filepath.Join(owner, pinMark(filepath.Base(k.dir)))} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			a.Logger.Warn("a note of a removed volume is left", "file", file, "error", err)
		}
	}
	if os.Remove(owner) == nil { // the owner has no other volume
		_ = os.Remove(filepath.Dir(owner)) // the cluster has no other owner
	}
	a.Logger.Info("a volume was removed on request", "volume", key, "last", v.Last, "size", v.Used.String())
	a.machine.requestProbe()
	a.work.Go(a.emptyBin)
	return v, nil
}

// volumeBin is the folder of removed volumes whose files still exist.
func (a *Agent) volumeBin() string { return filepath.Join(a.volumeRoot(), ".removed") }

// emptyBin removes the files of removed volumes.
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
