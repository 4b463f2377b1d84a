package server

import (
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
)

// ProfileCPU writes a CPU profile to a file until the returned function is called. An empty name disables it.
func ProfileCPU(name string) (stop func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("create the profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("profile: %w", err), f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close() // a truncated profile is obvious to its reader
	}, nil
}
