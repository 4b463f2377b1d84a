package devices

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/berthd/berth/internal/cluster"
)

// DefaultCDIDirs are the folders that the Container Device Interface names; what a later one holds goes before what an
// earlier one does.
func DefaultCDIDirs() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// specs is what the machine's CDI specifications hold.
type specs struct {
	names []string            // qualified, ordered
	files map[string][]string // of each, the device files that a container gets
	err   error
}

// cdi reads the machine's specifications anew. What is wrong with one is said; the others are good.
func (f *Finder) cdi() *specs {
	s := &specs{files: map[string][]string{}}
	dirs := f.CDIDirs
	if len(dirs) == 0 {
		for _, dir := range DefaultCDIDirs() {
			dirs = append(dirs, f.path(dir))
		}
	}
	if !slices.ContainsFunc(dirs, func(dir string) bool { _, err := os.Stat(dir); return err == nil }) {
		return s
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		s.err = err
		return s
	}
	for _, name := range cache.ListDevices() {
		s.names = append(s.names, name)
		d := cache.GetDevice(name)
		for _, n := range d.ContainerEdits.DeviceNodes {
			host := n.HostPath
			if host == "" {
				host = n.Path
			}
			s.files[name] = append(s.files[name], host)
		}
	}
	all := cache.GetErrors()
	var errs []error
	for _, path := range sortedKeys(all) {
		errs = append(errs, fmt.Errorf("%s: %w", path, errors.Join(all[path]...)))
	}
	s.err = errors.Join(errs...)
	return s
}

func (s *specs) has(name string) bool { return slices.Contains(s.names, name) }

// of returns the device that hands out the file, or nothing.
func (s *specs) of(file string) string {
	for _, name := range s.names {
		if !strings.HasSuffix(name, "=all") && slices.Contains(s.files[name], file) {
			return name
		}
	}
	return ""
}

// rest returns the devices of the specifications that are not among those that were found otherwise: the type is the
// class of their kind. Several names for the same files are one device, and the one that stands for all of a kind is
// none. Of NVIDIA's, parts of a GPU would be beside the whole; where GPUs were found, only they count.
func (s *specs) rest(found []Device) (all []Device) {
	taken := map[string]bool{}
	nvidia := false
	for i := range found {
		nvidia = nvidia || found[i].NVIDIA
		taken[strings.Join(s.files[found[i].CDI], "\n")] = true
	}
	for _, name := range s.names {
		kind, device, _ := strings.Cut(name, "=")
		_, class, _ := strings.Cut(kind, "/")
		files := strings.Join(s.files[name], "\n")
		ours := strings.HasPrefix(name, nvidiaCDI)
		if device == "all" || files != "" && taken[files] || ours && nvidia || !cluster.ValidName(class) ||
			class == cluster.CoreType || len(name) > cluster.MaxLabel {
			continue
		}
		taken[files] = true
		d := Device{Device: cluster.Device{ID: name, Type: class, Numa: -1}, CDI: name, NVIDIA: ours}
		if ours {
			d.NVIDIAName = device
		}
		all = append(all, d)
	}
	return all
}
