package cluster_test

import (
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

// TestRecordVersions: records that an earlier build would harm require a newer version, and no other record does.
func TestRecordVersions(t *testing.T) {
	service := func(placement string) cluster.Service {
		return *parse[cluster.Service](t,
			`{"name": "web", "definition": "web@1", "count": 1, "placement": `+placement+`}`)
	}
	step := func(fields string) *cluster.Job {
		return parse[cluster.Job](t,
			`{"name": "j", "steps": [{"name": "a", "definition": "w@1"}, {"name": "b", "definition": "w@1", `+fields+`}]}`)
	}
	cron := cluster.Cron{Job: cluster.CronJob{Steps: step(`"gang": {}`).Steps}}
	const gpus = `{"name": "w", "version": 1, "containers": [{"name": "a"}, {"name": "b", "resources": {"devices": [{}]}}]}`
	for name, c := range map[string]struct {
		record any
		want   int
	}{
		"a plain service": {service(`{}`), 1},
		"preferences and what allows more": {service(`{"strategy": "whole", "affinities": [{"attribute": "label.a", "value": "b"}],
			"spread": [{"attribute": "label.a", "targets": [{"value": "a", "percent": 50}]}], "relations": [{"labels": {"a": "b"}, "away": true}],
			"tolerations": [{"key": "a"}], "constraints": [{"attribute": "label.node.pool", "value": "a"}]}`), 1},
		"a pool": {service(`{"pool": "gpu"}`), 3},
		"a maximum skew": {
			service(`{"spread": [{"attribute": "label.a"}, {"attribute": "label.b", "max_skew": 1}]}`), 3,
		},
		"a required relation":  {service(`{"relations": [{"labels": {"a": "b"}, "required": true}]}`), 3},
		"a distinct attribute": {service(`{"distinct": [{"attribute": "label.a"}]}`), 3},
		"a constraint on the pool": {
			service(`{"constraints": [{"attribute": "node.pool", "op": "!=", "value": "a"}]}`), 3,
		},
		"a constraint on devices": {
			service(`{"constraints": [{"attribute": "device.gpu.count", "op": ">", "value": "3"}]}`), 3,
		},
		"a step":                     {step(`"count": 2`), 1},
		"a gang":                     {step(`"gang": {}`), 3},
		"a step in a pool":           {*step(`"placement": {"pool": "gpu"}`), 3},
		"a cron with a gang":         {&cron, 3},
		"a cron with a gang, no ref": {cron, 3},
		"a cron":                     {cluster.Cron{}, 1},
		"a cluster":                  {cluster.Cluster{Constraints: []cluster.Constraint{{Attribute: "label.a"}}}, 1},
		"a cluster in a pool": {
			&cluster.Cluster{Constraints: []cluster.Constraint{{Attribute: "node.pool"}}},
			3,
		},
		"a definition":              {&cluster.TaskDefinition{Containers: []cluster.Container{{}}}, 1},
		"a definition with devices": {parse[cluster.TaskDefinition](t, gpus), 3},
		"such a definition, no ref": {*parse[cluster.TaskDefinition](t, gpus), 3},
		"a check of readiness": {&cluster.TaskDefinition{Checks: []cluster.Check{
			{Type: cluster.CheckHTTP}, {Type: cluster.CheckTCP, Meaning: cluster.MeaningReadiness},
		}}, 1},
		"a check of liveness": {
			&cluster.TaskDefinition{Checks: []cluster.Check{
				{Type: cluster.CheckTCP, Meaning: cluster.MeaningLiveness},
			}}, 4,
		},
		"a check by grpc, not a ref": {
			cluster.TaskDefinition{Checks: []cluster.Check{{Type: cluster.CheckGRPC}}}, 4,
		},
		"a check of type ttl": {
			&cluster.TaskDefinition{Checks: []cluster.Check{{Type: cluster.CheckTTL}}}, 4,
		},
		"a definition on the node's network": {&cluster.TaskDefinition{Network: cluster.NetworkHost}, 1},
		"a definition with a network":        {&cluster.TaskDefinition{Network: cluster.NetworkBridge}, 4},
		"one without any, no ref":            {cluster.TaskDefinition{Network: cluster.NetworkNone}, 4},
		"a definition with volumes": {
			&cluster.TaskDefinition{Volumes: []cluster.Volume{{Name: "a"}, {Name: "b", Host: "/b"}}}, 1,
		},
		"one with a host volume": {
			&cluster.TaskDefinition{Volumes: []cluster.Volume{{Name: "a", HostVolume: "a"}}}, 4,
		},
		"one with a sticky volume": {
			cluster.TaskDefinition{Volumes: []cluster.Volume{{Name: "a", Sticky: true}}}, 4,
		},
		"a host in a pool":            {&cluster.Host{Pool: "gpu"}, 1},
		"a host with a taint":         {&cluster.Host{Taints: []cluster.Taint{{Key: "a"}}}, 3},
		"such a host, not as a ref":   {cluster.Host{Taints: []cluster.Taint{{Key: "a"}}}, 3},
		"an attempt that has devices": {&cluster.Desired{Devices: []cluster.DeviceUse{{ID: "a"}}}, 1},
	} {
		if got := cluster.RecordVersion(c.record); got != c.want {
			t.Errorf("%s: got version %d, want %d", name, got, c.want)
		}
	}
}

func TestServerReads(t *testing.T) {
	for _, c := range []struct {
		min, max, version int
		want              bool
	}{
		{0, 0, 1, true}, {0, 0, 2, false}, // a build of before there were versions
		{1, 2, 1, true}, {1, 2, 2, true}, {1, 2, 3, false}, {2, 3, 1, false},
	} {
		s := cluster.Server{RecordsMin: c.min, Records: c.max}
		if got := s.Reads(c.version); got != c.want {
			t.Errorf("a build that reads %d to %d reads %d: got %v", c.min, c.max, c.version, got)
		}
	}
}
