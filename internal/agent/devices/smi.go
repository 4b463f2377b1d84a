package devices

import (
	"context"
	"fmt"
	"os/exec"
	"time"
)

// smiTimeout limits NVIDIA's program, which hangs if a GPU hangs.
const smiTimeout = 5 * time.Second

// SMI runs NVIDIA's own program, for Finder.SMI. On a machine without it the result is empty, without an error.
func SMI(ctx context.Context) ([]byte, error) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return nil, nil //nolint:nilnil // the driver's files have the essential facts
	}
	ctx, cancel := context.WithTimeout(ctx, smiTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--query-gpu=uuid,name,memory.total,pci.bus_id",
		"--format=csv,noheader,nounits")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi: %w", err)
	}
	return out, nil
}
