package serving

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/agent/devices"
	"github.com/berthd/berth/internal/cli/session"
)

// deviceFlags declare what tasks can reserve on this machine beside CPU time and memory.
type deviceFlags struct {
	declared []string
	cores    string
	cdi      []string       // directories with specifications; none for the usual ones
	finder   devices.Finder // finds the declared devices
	cpus     []int          // all CPUs for tasks, if cores are offered
}

func (f *deviceFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.declared, "device", nil,
		"`DEVICE` for tasks: one that the agent does not discover, or more facts about one that it does, as "+
			"type=gpu,model=A100,memory=40GiB, with path=/dev/nvidia0 and numa=0; may be given several times")
	cmd.Flags().StringArrayVar(&f.cdi, "cdi-spec-dir", nil,
		"`FOLDER` with device specifications (CDI); may be given several times; default "+
			""+strings.Join(devices.DefaultCDIDirs(), " and "))
	cmd.Flags().StringVar(&f.cores, "cores", "",
		"`CPUS` reserved for tasks with cpu_pinning, such as 2-7, or all; default none")
}

// check parses the flags and adds their faults to list.
func (f *deviceFlags) check(list *session.Faults) {
	for _, dir := range f.cdi {
		if info, err := os.Stat(dir); err != nil {
			list.Add("--cdi-spec-dir: %v", err)
		} else if !info.IsDir() {
			list.Add("--cdi-spec-dir %s: it is not a folder", dir)
		}
	}
	f.finder = devices.Finder{SMI: devices.SMI, CDIDirs: f.cdi}
	for _, text := range f.declared {
		s, err := devices.ParseStated(text)
		if err != nil {
			list.Add("--device %s: %v", text, err)
		}
		f.finder.Stated = append(f.finder.Stated, s)
	}
	if f.cores == "" {
		return
	}
	usable, err := devices.Usable()
	if err != nil {
		list.Add("--cores: %v", err)
		return
	}
	f.cpus, f.finder.Cores = usable, usable
	if f.cores == "all" {
		return
	}
	if f.finder.Cores, err = devices.ParseCPUs(f.cores); err != nil {
		list.Add("--cores: %v", err)
	}
	if foreign := slices.DeleteFunc(slices.Clone(f.finder.Cores), func(cpu int) bool {
		return slices.Contains(usable, cpu)
	}); len(foreign) > 0 {
		list.Add("--cores %s: this process may not use %s, only %s", f.cores, devices.FormatCPUs(foreign),
			devices.FormatCPUs(usable))
	}
}
