package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ticks is the number of clock ticks a second in which the kernel counts CPU time.
const ticks = 100

// usage is the CPU time of processes, in seconds.
type usage struct {
	server, agents float64
	// children is the CPU time of what the agents started, and of what those started, as far as it has ended or is a
	// process of the domain's folder.
	children float64
	machine  float64 // of all processes and of the kernel
}

func (u usage) minus(o usage) usage {
	return usage{u.server - o.server, u.agents - o.agents, u.children - o.children, u.machine - o.machine}
}

// usage reads the CPU time since the processes have begun.
func (d *domain) usage() (u usage) {
	u.server, _ = processTime(d.server.Process.Pid)
	own := map[int]bool{d.server.Process.Pid: true}
	for _, agent := range d.agents {
		cpu, ended := processTime(agent.Process.Pid)
		u.agents += cpu
		u.children += ended
		own[agent.Process.Pid] = true
	}
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || own[pid] || pid == os.Getpid() {
			continue
		}
		if line, err := os.ReadFile(file); err != nil || !strings.Contains(string(line), d.dir) {
			continue
		}
		cpu, ended := processTime(pid)
		u.children += cpu + ended
	}
	u.machine = machineTime()
	return u
}

// processTime returns the CPU seconds of a process, and those of its ended children.
func processTime(pid int) (own, children float64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 15 {
		return 0, 0
	}
	return sum(f[11:13]) / ticks, sum(f[13:15]) / ticks
}

// machineTime returns the CPU seconds that the machine was not idle.
func machineTime() float64 {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(line) // cpu, user, nice, system, idle, iowait, irq, softirq, steal, …
	if len(f) < 8 {
		return 0
	}
	return (sum(f[1:4]) + sum(f[6:8])) / ticks
}

// sum adds numbers; a text that is no number counts as 0.
func sum(texts []string) (total float64) {
	for _, text := range texts {
		n, _ := strconv.ParseFloat(text, 64)
		total += n
	}
	return total
}
