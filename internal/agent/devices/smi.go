package devices

import (
	"context"
	"fmt"
	"os/exec"
	"time"
)

// smiTimeout bounds NVIDIA's program, which hangs where a GPU does.
const smiTimeout = 5 * time.Second

// SMI asks NVIDIA's own program about the GPUs, for Finder.SMI. A machine without it tells nothing, which is no error.
func SMI(ctx context.Context) ([]byte, error) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return nil, nil //nolint:nilnil // the driver's files tell what matters
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
