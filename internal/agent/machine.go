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

// How often the agent probes its machine: rarely, and more often while an executor fails.
const (
	probeInterval     = time.Minute
	fastProbeInterval = 5 * time.Second
	probeTimeout      = 10 * time.Second
)

// machine holds what the agent knows about its machine.
type machine struct {
	mu      sync.Mutex
	known   cluster.Facts
	working []named // executors that answered their newest probe, in the order of the configuration
	retired []named // retired executors that answered their newest probe
	// byName holds all executors that ever answered. Their tasks stay with them while they fail.
	byName   map[string]executor.Executor
	probeNow chan struct{} // capacity 1: a change is known
	missing  string        // errors of the executors that failed their newest probe
	// devices holds the devices of the newest search, by ID, and how containers get them. deviceProblem is the error of
	// that search.
	devices       map[string]devices.Device
	deviceProblem string
	// lacking holds, for each network mode, what the machine lacks for it.
	lacking map[cluster.NetworkMode]string
	// secretsDir is the folder in memory for secrets, "" if there is none; noSecrets then says why.
	secretsDir, noSecrets string
	// imagesReportedAt is when a change of the images was last reported (Boot).
	imagesReportedAt time.Duration

	stats      *cluster.NodeStats // the newest measurement
	reported   *cluster.NodeStats // the newest report
	knownSweep *cluster.DiskSweep // the newest sweep that a server knows
	// reportedTasks holds the newest reported statistics of each attempt, by UUID. reportCount counts the reports with
	// statistics. jumpReportedAt is when an attempt's jump was last reported at once (Boot).
	reportedTasks  map[string]reportedStats
	reportCount    uint64
	jumpReportedAt time.Duration
}

// named is an executor with its own name.
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

// executor returns the executor with the name.
func (m *machine) executor(name string) (executor.Executor, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.byName[name]
	return e, ok
}

// choose returns the name of the executor for a definition. Definitions with images get the first executor that holds
// images; others get the first one that holds none. If there is no match, the first working executor is used.
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

// probeMachine collects the facts of the machine and reports whether they changed, apart from free space.
func (a *Agent) probeMachine(ctx context.Context) bool {
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
	a.probeDevices(ctx, &f)
	a.probeSecrets(&f)
	f.Services = a.canFollow()
	f.Artifacts = !a.Volatile
	f.Volumes = a.pinnedVolumes()
	a.probeFolders(&f)
	a.probeNetworks(ctx, &f)

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

	retired := a.probeRetired(ctx)
	images := a.probeImages(ctx, working)
	a.machine.mu.Lock()
	defer a.machine.mu.Unlock()
	f.Images = a.imagesToReport(images)
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

// probeRetired returns the retired executors that work. Failures are not logged: a retired executor may never have run
// anything.
func (a *Agent) probeRetired(ctx context.Context) (retired []named) {
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

// probeDevices finds the machine's devices.
func (a *Agent) probeDevices(ctx context.Context, f *cluster.Facts) {
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
	if text != a.machine.deviceProblem && text != "" {
		a.Logger.Warn("not all devices of the machine are known", "error", text)
	}
	for _, id := range sortedKeys(a.machine.devices) {
		if _, there := byID[id]; !there {
			a.Logger.Warn("a device is gone", "device", id)
		}
	}
	a.machine.deviceProblem, a.machine.devices = text, byID
}

// sameFacts compares all facts except free space, which changes all the time.
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

// watchMachine probes the machine regularly and reports changes.
func (a *Agent) watchMachine(ctx context.Context) {
	for {
		wait := probeInterval
		a.machine.mu.Lock()
		if a.machine.missing != "" {
			wait = fastProbeInterval
		}
		a.machine.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-a.machine.probeNow:
			timer.Stop()
		case <-timer.C:
		}
		if a.probeMachine(ctx) && ctx.Err() == nil {
			a.reports.newFacts(a.machine.facts())
		}
	}
}
