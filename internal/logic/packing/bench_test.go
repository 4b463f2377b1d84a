package packing_test

import (
	"testing"

	"github.com/berthd/berth/internal/logic/packing"
)

// BenchmarkScore scores a demand on a node with eight devices.
func BenchmarkScore(b *testing.B) {
	m := mixed()
	w := m.ValueModel()
	n := node(96, 384, 1000, 1000, 530, 190, 1000, 0, 350, 1000)
	for _, c := range []struct {
		name string
		d    packing.Demand
	}{
		{"share", share(8, 30, 470)},
		{"whole", devices(8, 30, 1)},
		{"several", devices(8, 30, 4)},
		{"cpu", devices(8, 30, 0)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = w.Score(&n, &c.d)
			}
		})
	}
}

// BenchmarkWorth makes the value model of a full mix.
func BenchmarkWorth(b *testing.B) {
	var m packing.Mix
	for i := range packing.MostTypical {
		m.Learn(share(int64(i/8+1), int64(1<<(i%8)), 10*(i%8+1)), i+1)
	}
	for b.Loop() {
		m.ValueModel()
	}
}
