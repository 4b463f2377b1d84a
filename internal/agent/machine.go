package agent

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/agent/devices"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/plain"
)

// How often the agent looks at its machine: rarely, and more often while an executor does not work.
const (
	lookInterval = time.Minute
	lookSoon     = 5 * time.Second
	probeTimeout = 10 * time.Second
)

// machine is what the agent knows of its machine.
type machine struct {
	mu      sync.Mutex
	known   cluster.Facts
	working []named // executors that answered their newest probe, in the order of the configuration
	retired []named // those that take nothing new
	// byName holds all that ever answered: their tasks are theirs while they do not.
	byName  map[string]executor.Executor
	again   chan struct{} // capacity 1: somebody knows of a change
	missing string        // what those that did not answer said
	// devices holds those that were found last, by ID, and how they are given to containers; trouble is what was said
	// about the search.
	devices map[string]devices.Device
	trouble string
	// lacking is what was said that the machine lacks for networks.
	lacking map[cluster.NetworkMode]string
	// secretsDir is the folder in memory for secrets, "" where noSecrets says why there is none.
	secretsDir, noSecrets string
	// imagesAt is when a change of the images was last told (Boot).
	imagesAt time.Duration

	stats *cluster.NodeStats // measured last
	told  *cluster.NodeStats // told the server last
	sweep *cluster.DiskSweep // the newest that a server was told of
	// each is what the server knows of the attempts, by UUID; tellings counts how often it was told. jumped is when a
	// jump of one was last told at once (Boot).
	each     map[string]toldStats
	tellings uint64
	jumped   time.Duration
}

// named is an executor with the name that it told.
type named struct {
	executor.Executor
	name string
}

// facts returns a copy of the facts.
func (m *machine) facts() cluster.Facts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known
}

// executor returns the executor of that name.
func (m *machine) executor(name string) (executor.Executor, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.byName[name]
	return e, ok
}

// choose returns the name of the executor for a definition: for images the first that holds images, for
// others the first that does not, else whichever there is.
func (m *machine) choose(d *cluster.TaskDefinition) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	image := slices.ContainsFunc(d.Containers, func(c cluster.Container) bool { return c.Image != "" })
	for _, e := range m.working {
		if _, holds := e.Executor.(executor.ImageStore); holds == image {
			return e.name, true
		}
	}
	if len(m.working) == 0 {
		return "", false
	}
	return m.working[0].name, true
}

// look finds out about the machine and reports whether the facts changed, apart from free space.
func (a *Agent) look(ctx context.Context) bool {
	f, err := a.Facts(a.DataDir)
	if err != nil {
		a.Logger.Warn("not all facts of the machine are known", "error", err)
	}
	if a.CPU != 0 {
		f.CPU = a.CPU
	}
	if a.Memory != 0 {
		f.Memory = a.Memory
	}
	if a.Disk != 0 {
		f.Disk = a.Disk
	}
	if a.Address != "" {
		f.Address = a.Address
	}
	f.Labels, f.Version, f.ReservedPorts = a.Labels, a.Version, a.ReservedPorts
	a.lookForDevices(ctx, &f)
	a.lookForSecrets(&f)
	f.Services = a.canFollow()
	f.Artifacts = !a.Volatile
	f.Volumes = a.pinnedVolumes()
	a.lookForFolders(&f)
	a.lookForNetworks(ctx, &f)

	var working []named
	var missing []error
	for _, e := range a.Executors {
		probe, cancel := context.WithTimeout(ctx, probeTimeout)
		fact, err := e.Probe(probe)
		cancel()
		if err != nil {
			missing = append(missing, err)
			continue
		}
		f.Executors = append(f.Executors, fact)
		working = append(working, named{e, fact.Name})
	}

	retired := a.lookForRetired(ctx)
	images := a.lookForImages(ctx, working)
	a.machine.mu.Lock()
	defer a.machine.mu.Unlock()
	f.Images = a.imagesToTell(images)
	changed := !sameFacts(f, a.machine.known)
	a.machine.known, a.machine.working = f, working
	if a.machine.byName == nil {
		a.machine.byName = map[string]executor.Executor{}
	}
	for _, e := range slices.Concat(retired, working) {
		a.machine.byName[e.name] = e.Executor
	}
	a.machine.retired = retired
	var text string
	if err := errors.Join(missing...); err != nil {
		text = plain.Text(err)
	}
	if text != a.machine.missing && text != "" {
		a.Logger.Warn("an executor does not work on this machine", "error", text)
	}
	a.machine.missing = text
	return changed
}

// lookForRetired returns the retired executors that work. Of others nothing is said: they may never have run anything.
func (a *Agent) lookForRetired(ctx context.Context) (retired []named) {
	for _, e := range a.Retired {
		probe, cancel := context.WithTimeout(ctx, probeTimeout)
		fact, err := e.Probe(probe)
		cancel()
		if err == nil {
			retired = append(retired, named{e, fact.Name})
		}
	}
	return retired
}

// lookForDevices finds the machine's devices.
func (a *Agent) lookForDevices(ctx context.Context, f *cluster.Facts) {
	if a.Devices == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	all, err := a.Devices(ctx)
	byID := make(map[string]devices.Device, len(all))
	for i := range all {
		byID[all[i].ID] = all[i]
		f.Devices = append(f.Devices, all[i].Device)
	}
	if invalid := f.Validate(); invalid != nil { // servers would refuse the node
		err = errors.Join(err, invalid)
		f.Devices = nil
	}
	text := ""
	if err != nil {
		text = plain.Text(err)
	}
	a.machine.mu.Lock()
	defer a.machine.mu.Unlock()
	if text != a.machine.trouble && text != "" {
		a.Logger.Warn("not all devices of the machine are known", "error", text)
	}
	for _, id := range sortedKeys(a.machine.devices) {
		if _, there := byID[id]; !there {
			a.Logger.Warn("a device is gone", "device", id)
		}
	}
	a.machine.trouble, a.machine.devices = text, byID
}

// sameFacts compares all but free space, which changes all the time.
func sameFacts(f, g cluster.Facts) bool {
	f.Disks, g.Disks = slices.Clone(f.Disks), slices.Clone(g.Disks)
	for i := range f.Disks {
		f.Disks[i].Free = 0
	}
	for i := range g.Disks {
		g.Disks[i].Free = 0
	}
	return reflect.DeepEqual(f, g)
}

// watchMachine looks again now and then, and reports what changed.
func (a *Agent) watchMachine(ctx context.Context) {
	for {
		wait := lookInterval
		a.machine.mu.Lock()
		if a.machine.missing != "" {
			wait = lookSoon
		}
		a.machine.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-a.machine.again:
			timer.Stop()
		case <-timer.C:
		}
		if a.look(ctx) && ctx.Err() == nil {
			a.reports.newFacts(a.machine.facts())
		}
	}
}
