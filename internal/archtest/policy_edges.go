package archtest

// edgeLayers are the rows of the edges, the wiring, the generators, and of packages that check others.
var edgeLayers = map[string][]string{
	// The edges and the wiring: only internal/serve and the commands that start it name drivers.
	"api":                        {"internal/cluster"},
	"api/client":                 {"api", "internal/pause"},
	"cmd/berth":                  {"..."},
	"internal/apiserver/trouble": {"api", "internal/cluster", "internal/taskview", "internal/wording"},
	"internal/cli":               {"api/client", "internal/cli/...", "internal/version", "internal/wording"},
	"internal/cli/apply": {
		"api", "api/client", "internal/blockyaml", "internal/cli/fetch", "internal/cli/output",
		"internal/cli/service", "internal/cli/session", "internal/cli/wait", "internal/cli/written",
		"internal/cluster", "internal/fields", "internal/hinted", "internal/manifest", "internal/selector",
		"internal/wording",
	},
	"internal/cli/clitest": {
		"api", "api/client", "internal/apiserver/trouble", "internal/cluster", "internal/selector", "internal/wording",
	},
	"internal/cli/endpoint": {
		"api", "api/client", "internal/cli/fetch", "internal/cli/output", "internal/cli/session", "internal/cli/watch",
		"internal/cluster", "internal/pause", "internal/wording",
	},
	"internal/cli/fetch": {
		"api", "api/client", "internal/cli/output", "internal/cli/session", "internal/cluster", "internal/selector",
		"internal/taskview", "internal/wording",
	},
	"internal/cli/host": {
		"api", "api/client", "internal/cli/output", "internal/cli/session", "internal/cluster", "internal/hinted",
		"internal/manifest", "internal/pki", "internal/serve/datadir", "internal/version", "internal/wording",
	},
	"internal/cli/login": {
		"api/client", "internal/cli/output", "internal/cli/session", "internal/cluster", "internal/contexts",
		"internal/hinted", "internal/serve/datadir", "internal/wording",
	},
	"internal/cli/machine": {
		"api", "api/client", "internal/bootstrap", "internal/cli/apply", "internal/cli/fetch", "internal/cli/output",
		"internal/cli/session", "internal/cluster", "internal/serve/datadir", "internal/setup", "internal/ssh",
		"internal/wording",
	},
	"internal/cli/node": {
		"api", "api/client", "internal/cli/fetch", "internal/cli/output", "internal/cli/session", "internal/cli/tables",
		"internal/cli/host", "internal/cli/machine", "internal/cli/top", "internal/cli/trouble", "internal/cli/wait",
		"internal/cluster", "internal/hinted", "internal/serve/datadir", "internal/version", "internal/wording",
	},
	"internal/cli/operator": {
		"api", "api/client", "internal/cli/fetch", "internal/cli/output", "internal/cli/redact", "internal/cli/session",
		"internal/cli/storeflags", "internal/cli/wait", "internal/cluster", "internal/enum", "internal/hinted",
		"internal/scheduling/schedulertest", "internal/secrets", "internal/serve/datadir", "internal/serve/engines",
		"internal/store", "internal/store/restore", "internal/store/snapshotfile", "internal/suite", "internal/version",
		"internal/wording",
	},
	"internal/cli/output": {"api", "internal/cluster", "internal/hinted", "internal/jsonfields", "internal/taskview"},
	"internal/cli/query": {
		"api", "api/client", "internal/cli/endpoint", "internal/cli/fetch", "internal/cli/machine", "internal/cli/node",
		"internal/cli/output", "internal/cli/rebalance", "internal/cli/redact", "internal/cli/service",
		"internal/cli/serving", "internal/cli/session", "internal/cli/tables", "internal/cli/trouble",
		"internal/cli/written", "internal/cluster", "internal/enum", "internal/hinted", "internal/spelling",
		"internal/taskview", "internal/wording",
	},
	"internal/cli/rebalance": {
		"api", "api/client", "internal/cli/output", "internal/cli/session", "internal/cli/wait", "internal/cluster",
		"internal/wording",
	},
	"internal/cli/redact": {"internal/cluster"},
	"internal/cli/resource": {
		"api", "api/client", "internal/cli/fetch", "internal/cli/output", "internal/cli/session", "internal/cli/wait",
		"internal/cluster", "internal/wording",
	},
	"internal/cli/service": {
		"api", "api/client", "internal/cli/fetch", "internal/cli/output", "internal/cli/session", "internal/cli/tables",
		"internal/cli/trouble", "internal/cli/wait", "internal/cluster", "internal/wording",
	},
	"internal/cli/serving": {
		"api", "api/client", "internal/agent", "internal/agent/artifact", "internal/agent/devices",
		"internal/agent/diskspace", "internal/agent/nameserver", "internal/agent/network", "internal/agent/usage",
		"internal/agent/volumes",
		"internal/backup", "internal/cli/fetch", "internal/cli/operator", "internal/cli/output", "internal/cli/session",
		"internal/cli/storeflags", "internal/cluster", "internal/egress", "internal/executor/containerd",
		"internal/hinted", "internal/pki", "internal/reverse", "internal/secrets", "internal/serve/datadir",
		"internal/serve/engines", "internal/serve/handover", "internal/serve/join", "internal/serve/node",
		"internal/serve/server",
		"internal/serve/single", "internal/store", "internal/version", "internal/wording",
	},
	"internal/cli/session": {
		"api", "api/client", "internal/blockyaml", "internal/cli/output", "internal/cluster", "internal/contexts",
		"internal/hinted", "internal/pki", "internal/plain", "internal/serve/datadir", "internal/spelling",
		"internal/store", "internal/version", "internal/wording",
	},
	"internal/cli/simulate": {
		"api", "api/client", "internal/cli/apply", "internal/cli/output", "internal/cli/session", "internal/cluster",
		"internal/manifest", "internal/store", "internal/store/snapshotfile", "internal/traces", "internal/whatif",
		"internal/wording",
	},
	"internal/cli/storeflags": {"internal/cli/session", "internal/serve/datadir", "internal/serve/engines"},
	"internal/cli/stream": {
		"api", "api/client", "internal/archive", "internal/cli/fetch", "internal/cli/output", "internal/cli/session",
		"internal/cli/trouble", "internal/cli/wait", "internal/cluster", "internal/hinted", "internal/taskview",
		"internal/wording",
	},
	"internal/cli/tables": {
		"api", "api/client", "internal/cli/fetch", "internal/cli/output", "internal/cli/session",
		"internal/cli/trouble", "internal/cluster", "internal/taskview", "internal/wording",
	},
	"internal/cli/top": {
		"api", "api/client", "internal/cli/fetch", "internal/cli/output", "internal/cli/session", "internal/cli/tables",
		"internal/cli/trouble", "internal/cluster", "internal/pause", "internal/taskview", "internal/wording",
	},
	"internal/cli/trouble": {
		"api", "api/client", "internal/cli/fetch", "internal/cli/output", "internal/cli/session", "internal/cluster",
		"internal/taskview", "internal/wording",
	},
	"internal/cli/written": {"internal/cli/output", "internal/cluster"},
	"internal/cli/watch":   {"api/client", "internal/cli/output", "internal/cli/session", "internal/cli/wait"},
	"internal/cli/wait": {
		"api", "api/client", "internal/cli/fetch", "internal/cli/output", "internal/cli/session", "internal/cli/tables",
		"internal/cli/trouble", "internal/cluster", "internal/taskview", "internal/wording",
	},
	"internal/hinted":        {},
	"internal/serve/datadir": {"internal/cluster", "internal/hinted", "internal/privatefile", "internal/store"},
	"internal/serve/domains": {"internal/cluster", "internal/controlplane", "internal/store"},
	"internal/serve/engines": {
		"internal/consulclient", "internal/hinted", "internal/serve/datadir", "internal/store", "internal/store/consul",
		"internal/store/etcd", "internal/store/remote",
	},
	"internal/serve/hostdriver": {
		"api", "api/client", "internal/agent/hostapi", "internal/apiserver/respond", "internal/cluster",
		"internal/pause", "internal/shorten",
	},
	"internal/serve/join": {
		"api", "internal/cluster", "internal/hinted", "internal/pause", "internal/pki", "internal/serve/datadir",
	},
	"internal/serve/node": {
		"internal/agent", "internal/agent/artifact", "internal/agent/devices", "internal/agent/diskspace",
		"internal/agent/hostapi", "internal/agent/machine", "internal/agent/nameserver", "internal/agent/network",
		"internal/agent/secrets", "internal/agent/usage", "internal/agent/volumes", "internal/cluster",
		"internal/consulclient",
		"internal/discovery", "internal/discovery/consul", "internal/egress", "internal/executor",
		"internal/executor/containerd", "internal/executor/containerd/daemon", "internal/executor/process",
		"internal/executor/process/embedded", "internal/hinted", "internal/pki", "internal/privatefile",
		"internal/reverse", "internal/serve/datadir", "internal/store/remote", "internal/telemetry",
		"internal/transport",
		"internal/unixsocket", "internal/version",
	},
	"internal/serve/server": {
		"api", "internal/apiserver", "internal/apiserver/audit", "internal/apiserver/control",
		"internal/apiserver/planning", "internal/apiserver/schedulingapi", "internal/apiserver/views",
		"internal/backup", "internal/boottime", "internal/cluster", "internal/controlplane", "internal/dispatcher",
		"internal/egress", "internal/heap", "internal/hinted", "internal/keyring", "internal/measure", "internal/peers",
		"internal/pki", "internal/plain", "internal/reverse", "internal/secrets", "internal/serve/datadir",
		"internal/serve/domains", "internal/serve/engines", "internal/ssh", "internal/store",
		"internal/store/batching", "internal/store/election",
		"internal/store/restore", "internal/store/snapshotfile", "internal/telemetry", "internal/transport",
		"internal/version", "internal/whatif",
	},
	"internal/serve/handover": {
		"api", "api/client", "internal/agent/state", "internal/apiserver/respond", "internal/cluster", "internal/pki",
		"internal/plain", "internal/serve/datadir", "internal/serve/join",
	},
	"internal/serve/single": {
		"api", "api/client", "internal/contexts", "internal/serve/handover", "internal/serve/hostdriver",
		"internal/serve/node", "internal/serve/server", "internal/version",
	},

	// Programs that users run and read: they know nothing of Berth's insides.
	"examples/demo":          {"internal/freeport"},
	"examples/images":        {},
	"examples/programs/web":  {},
	"examples/programs/work": {},

	"packaging/changelog": {}, // programs that make a release
	"packaging/image":     {},

	// Generators of the reference, and benchmarks.
	"internal/bench/agent":   {"internal/pause"},
	"internal/bench/busybox": {},
	"internal/bench/domains": {"internal/pause"},
	"internal/bench/fleet": {
		"api", "api/client", "internal/apiserver", "internal/apiserver/views", "internal/boottime", "internal/cluster",
		"internal/controlplane", "internal/dispatcher", "internal/freeport", "internal/heap", "internal/pause",
		"internal/pki", "internal/serve/engines", "internal/store", "internal/store/memory", "internal/transport",
	},
	"internal/bench/growth": {"internal/cluster", "internal/logic/scheduler"},
	"internal/bench/latency": {
		"internal/agent", "internal/bench/busybox", "internal/cluster", "internal/executor",
		"internal/executor/containerd", "internal/executor/containerd/daemon", "internal/transport",
	},
	"internal/bench/openb": {
		"internal/cluster", "internal/logic/packing", "internal/logic/scheduler", "internal/traces",
	},
	"internal/bench/short": {
		"api", "api/client", "internal/bench/busybox", "internal/cluster", "internal/freeport", "internal/pause",
	},
	"internal/bench/start": {"internal/pause"},
	"internal/bench/streams": {
		"api", "internal/apiserver", "internal/cluster", "internal/heap", "internal/pause", "internal/store",
		"internal/store/memory",
	},
	"internal/bench/swf": {
		"api", "internal/cluster", "internal/logic/backfill", "internal/logic/forecast", "internal/logic/scheduler",
		"internal/store", "internal/traces", "internal/whatif",
	},
	"internal/refgen": {
		"internal/agent/hostapi", "internal/apiserver/openapi", "internal/apiserver/route", "internal/cluster",
		"internal/jsonfields",
		"internal/logic/lifecycle", "internal/schema", "internal/store", "internal/transport",
	},

	// Packages that check the others.
	"internal/archtest":                        {},
	"internal/executor/executortest/benchmark": {"internal/cluster", "internal/executor"},
	"internal/sim":                             {"..."},
	"internal/sim/ci":                          {"internal/cluster"},
	"internal/sim/year": {
		"api", "internal/apiserver", "internal/cluster", "internal/controlplane", "internal/publishing",
		"internal/store", "internal/store/memory",
	},
	"internal/store/storetest/enginetest": {
		"internal/store", "internal/store/storetest", "internal/suite", "internal/suite/suitetest", "internal/testkit",
	},
	"internal/suite/suitetest":         {"internal/suite", "internal/testkit"},
	"internal/testkit":                 {"internal/freeport", "internal/pause", "internal/suite", "internal/yardstick"},
	"internal/testkit/script":          {},
	"internal/transport/transporttest": {},
	"internal/testkit/testsummary":     {"internal/testkit"},
	"test/...":                         {}, // nothing but tests
	"test/netlab":                      {"internal/testkit"},
	"test/machines":                    {"internal/testkit", "test/netlab"},
	"test/history":                     {"api", "api/client", "internal/cluster", "internal/testkit"},
	"test/harness": {
		"api", "api/client", "internal/cluster", "internal/store/consul/consultest", "internal/testkit",
	},
	"test/load": {"api", "api/client", "internal/cluster", "internal/testkit"},
}
