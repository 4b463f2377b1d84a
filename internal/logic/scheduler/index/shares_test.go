package index

import (
	"testing"
)

func TestShare(t *testing.T) {
	for _, test := range []struct {
		name             string
		amount, capacity int64
		want             uint64
	}{
		{"nothing", 0, 100, 0},
		{"half", 50, 100, 500_000},
		{"a third is cut", 1, 3, 333_333},
		{"all", 100, 100, 1_000_000},
		{"more than all", 550, 100, 5_500_000},
		{"far more than all", 5000, 100, maxParts},
		{"of nothing", 0, 0, 0},
		{"used of nothing", 5, 0, 0},
		{"less than nothing", -5, 100, 0},
		{"largest amounts", maxAmount - 1, maxAmount, 999_999},
		{"of largest amounts all", maxAmount, maxAmount, 1_000_000},
		{"of largest amounts too much", maxAmount, 1, maxParts},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Share(test.amount, test.capacity); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}
