package apiserver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/publishing"
)

// The status shows a publisher that keeps the event log from being trimmed, one that loses events, and one that lost
// some within the last day.
func TestPublisherAlarms(t *testing.T) {
	w := newFleetWorld(t, three())
	const half = publishing.KeptBatches/2 + 1
	for i := range 2 {
		records := map[string]any{}
		for j := range half {
			id := fmt.Sprintf("e%d-%06d", i, j)
			records["event/"+id] = &cluster.EventBatch{ID: id}
		}
		w.put(records)
	}
	now := time.Now().UTC()
	tests := []struct {
		name      string
		trimmed   uint64
		publisher *cluster.Publisher
		says      string // "" for no alarm
	}{
		{"none", 0, nil, ""},
		{"one that follows", 0, &cluster.Publisher{Position: 2*half - 1}, ""},
		{"one that is slow", 0, &cluster.Publisher{}, "publisher broker has 20002 batches of events to send"},
		{"one that loses events", 500, &cluster.Publisher{Position: 100}, "dropped 400 batches of them unsent"},
		{
			"one that lost events", 500, &cluster.Publisher{Position: 2 * half, Lost: 400, LostAt: now},
			"publisher broker lost 400 batches of events",
		},
		{
			"one that lost events long ago", 500,
			&cluster.Publisher{Position: 2 * half, Lost: 400, LostAt: now.Add(-25 * time.Hour)}, "",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			records := map[string]any{
				"trim/event": &cluster.EventTrim{Batches: test.trimmed}, "publisher/broker": nil,
			}
			if test.publisher != nil {
				test.publisher.Name = "broker"
				records["publisher/broker"] = test.publisher
			}
			w.put(records)
			alarms := strings.Join(read[api.Status](t, w.want(200, "GET", "/v1/status", nil)).Alarms, "\n")
			if (alarms != "") != (test.says != "") || !strings.Contains(alarms, test.says) {
				t.Errorf("alarms: got %q, want %q", alarms, test.says)
			}
		})
	}
}
