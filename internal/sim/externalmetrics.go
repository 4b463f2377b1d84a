package sim

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/berthd/berth/internal/cluster"
)

// externalMetrics replaces systems outside of Berth. It answers every query and every gate.
type externalMetrics struct {
	mu   sync.Mutex
	load string
}

// set sets the load to a number, or "fail".
func (o *externalMetrics) set(load string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.load = load
}

func (o *externalMetrics) now() (float64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.load == "" {
		return 10, nil
	}
	value, err := strconv.ParseFloat(o.load, 64)
	if err != nil {
		return 0, errors.New("the outside does not answer")
	}
	return value, nil
}

// Query is part of controlplane.Measurer.
func (o *externalMetrics) Query(ctx context.Context, _, _ string) (float64, error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	return o.now()
}

// Gate is part of controlplane.Measurer. Gates pass while the load is below 40.
func (o *externalMetrics) Gate(ctx context.Context, _ cluster.Gate) (passed bool, message string, err error) {
	if ctx.Err() != nil {
		return false, "", ctx.Err()
	}
	value, err := o.now()
	return err == nil && value < 40, "load = " + strconv.FormatFloat(value, 'g', -1, 64), err
}
