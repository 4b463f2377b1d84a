package cluster

import "time"

// Hardware describes the parts of a machine. Parts that cannot be determined are left out.
type Hardware struct {
	// CPUModel is the kernel's name of the first processor.
	CPUModel string `json:"cpu_model,omitempty"`
	// Sockets, Cores and Threads count processors, their cores, and the hardware threads that the kernel uses.
	Sockets int `json:"sockets,omitempty"`
	Cores   int `json:"cores,omitempty"`
	Threads int `json:"threads,omitempty"`
	// NUMANodes counts the memory domains; a machine without such domains has one.
	NUMANodes int `json:"numa_nodes,omitempty"`
	// Drives are the block devices without partitions, in the order of their names.
	Drives []Drive `json:"drives,omitempty"`
	// Interfaces are the network interfaces with a device or an address, in the order of their names.
	Interfaces []NetworkInterface `json:"interfaces,omitempty"`
	// GPUs are the display and compute controllers on the PCI bus, in the order of their addresses. Devices in Facts
	// are those that tasks may reserve; a GPU without its driver is here alone.
	GPUs []PCIDevice `json:"gpus,omitempty"`
	// Cgroups is the version of the control groups with the controllers for memory and CPU: 1 or 2.
	Cgroups int `json:"cgroups,omitempty"`
	// Virtualization names the hypervisor or the container runtime around the machine, as systemd-detect-virt(1) does.
	// It is empty on a bare machine.
	Virtualization string `json:"virtualization,omitempty"`
	// Distribution is the name and version of the operating system, as its file os-release says.
	Distribution string `json:"distribution,omitempty"`
	// Init is the program that starts services: "systemd", or empty for another one.
	Init string `json:"init,omitempty"`
}

// Drive is one block device.
type Drive struct {
	Name       string `json:"name"`
	Model      string `json:"model,omitempty"`
	Size       Bytes  `json:"size"`
	Rotational bool   `json:"rotational,omitempty"`
}

// NetworkInterface is one network interface.
type NetworkInterface struct {
	Name string `json:"name"`
	MAC  string `json:"mac,omitempty"`
	// Speed is in Mbit/s; 0 if the interface does not say.
	Speed     int      `json:"speed,omitempty"`
	Addresses []string `json:"addresses,omitempty"` // with the length of the prefix
}

// PCIDevice is one device on the PCI bus.
type PCIDevice struct {
	Address string `json:"address"`
	// Vendor and Device are the numbers of the PCI registry, in hexadecimal digits, such as "10de".
	Vendor string `json:"vendor"`
	Device string `json:"device"`
	Driver string `json:"driver,omitempty"`
}

// Route is a connection from a machine to a server.
type Route struct {
	Server string `json:"server"`
	// Address is that of the machine on the route.
	Address string `json:"address,omitempty"`
	// Took is the time to connect.
	Took Duration `json:"took,omitempty"`
	// Problem says why the server cannot be reached; it is empty if it can.
	Problem string `json:"problem,omitempty"`
}

// HostSetup is how a machine was added: by whom it is reached, and what was found then.
type HostSetup struct {
	// Address is that of the machine's SSH server, "user@host:port", and Jump are the machines on the way there.
	Address string   `json:"address"`
	Jump    []string `json:"jump,omitempty"`
	// Profile is what was applied, if anything.
	Profile *Ref `json:"profile,omitempty"`
	// Binary is the checksum of the installed binary, shortened.
	Binary string    `json:"binary,omitempty"`
	At     time.Time `json:"at"`
	// ClockSkew is how far the clock of the machine was ahead.
	ClockSkew Duration `json:"clock_skew,omitempty"`
	Routes    []Route  `json:"routes,omitempty"`
	// Drift names what differed from the profile at the last comparison, MaxDrift items at most.
	Drift []string `json:"drift,omitempty"`
	// FailedUpgrade is the last upgrade of the agent, if it failed.
	FailedUpgrade *FailedUpgrade `json:"failed_upgrade,omitempty"`
}

// FailedUpgrade is an upgrade of an agent that went back.
type FailedUpgrade struct {
	// Binary is the shortened checksum of the binary that failed.
	Binary string    `json:"binary"`
	At     time.Time `json:"at"`
	// Problem says what failed.
	Problem string `json:"problem"`
}

// MaxDrift limits the items of HostSetup.Drift.
const MaxDrift = 32

// maxRoutes and maxJumps limit the servers and the jump hosts of a HostSetup.
const (
	maxRoutes = 64
	maxJumps  = 8
)

func (s *HostSetup) validate(k check) {
	k.at("address").label(s.Address)
	k.at("address").must(s.Address != "", "is missing: want the address of the machine's SSH server")
	k.at("jump").must(len(s.Jump) <= maxJumps, "has %d hosts, at most %d are allowed", len(s.Jump), maxJumps)
	for i, j := range s.Jump {
		k.index("jump", i).label(j)
	}
	k.at("binary").label(s.Binary)
	k.at("drift").must(len(s.Drift) <= MaxDrift, "has %d entries, at most %d are allowed", len(s.Drift), MaxDrift)
	for i, item := range s.Drift {
		k.index("drift", i).label(item)
	}
	if f := s.FailedUpgrade; f != nil {
		failed := k.at("failed_upgrade")
		failed.at("binary").label(f.Binary)
		failed.at("problem").label(f.Problem)
	}
	k.at("routes").must(len(s.Routes) <= maxRoutes, "has %d entries, at most %d are allowed", len(s.Routes), maxRoutes)
	for i, r := range s.Routes {
		entry := k.index("routes", i)
		entry.at("server").label(r.Server)
		entry.at("address").label(r.Address)
		entry.at("problem").label(r.Problem)
	}
}
