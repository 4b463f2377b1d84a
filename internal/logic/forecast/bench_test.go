package forecast_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/berthd/berth/internal/logic/forecast"
)

// BenchmarkForecast forecasts a queue of 10,000 requests, the first of them of a million tasks.
func BenchmarkForecast(b *testing.B) {
	for _, nodes := range []int{100, 1000, 10_000} {
		for _, many := range []int{1, 1_000_000} {
			b.Run(fmt.Sprintf("nodes=%d/tasks=%d", nodes, many), func(b *testing.B) {
				h := forecast.NewHistory(1000)
				for i := range 1000 {
					k := forecast.Kind{Cluster: "c", Job: fmt.Sprint("j", i%20)}
					h.Learn(k, forecast.Sample{Ran: time.Duration(1+i%50) * time.Minute, Limit: time.Hour})
				}
				w := newWorld(nodes, forecast.EASY)
				for i := range 4 * nodes {
					w.run(int32(i%nodes), 1, 0, 60)
					w.Running[i].Runs = h.Runs(forecast.Kind{Cluster: "c", Job: fmt.Sprint("j", i%20)}, time.Hour)
				}
				for i := range 10_000 {
					r := w.wait(int64(1+i%4), 0, 30+i%31)
					r.Runs = h.Runs(forecast.Kind{Cluster: "c", Job: fmt.Sprint("j", i%20)}, r.Limit)
				}
				w.Waiting[0].Tasks = many
				for b.Loop() {
					forecast.Forecast(&w.Input)
				}
			})
		}
	}
}
