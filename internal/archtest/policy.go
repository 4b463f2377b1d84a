package archtest

import "maps"

// modulePath is the module whose packages the tables name by their path below it.
const modulePath = "github.com/berthd/berth"

// layers returns a map from each package to the packages of this module that it may import outside its tests. A name
// ending in "/..." means the package and all below it; "..." alone for all. Data flows down this table: nouns,
// decisions, effects, loops, wiring.
//
// To add a package: add its row in its layer. To remove one: remove its row; a row without a package fails, too.
func layers() map[string][]string {
	all := maps.Clone(lowerLayers)
	maps.Copy(all, edgeLayers)
	return all
}

// lowerLayers are the rows of all packages but those of edgeLayers.
var lowerLayers = map[string][]string{
	// The nouns.
	"internal/cluster": {"internal/shorten"},

	// The decisions: pure functions of a snapshot, each may use those before it.
	"internal/logic/admission": {"internal/cluster"},
	"internal/logic/backfill":  {},
	"internal/logic/cron":      {"internal/cluster"},
	"internal/logic/forecast": {
		"internal/cluster", "internal/logic/admission", "internal/logic/scheduler/cycle",
		"internal/logic/scheduler/fair",
	},
	"internal/logic/lifecycle": {"internal/cluster"},
	"internal/logic/watcher":   {"internal/cluster", "internal/logic/lifecycle"},
	"internal/logic/reconciler": {
		"internal/clause", "internal/cluster", "internal/logic/lifecycle", "internal/logic/scheduler",
		"internal/logic/watcher", "internal/shorten",
	},
	"internal/logic/packing":          {"internal/cluster"},
	"internal/logic/scaler":           {"internal/cluster"},
	"internal/logic/scheduler/encode": {"internal/cluster"},
	"internal/logic/scheduler/fair":   {},
	"internal/logic/scheduler/index":  {"internal/cluster"},
	"internal/logic/scheduler/devices": {
		"internal/cluster", "internal/logic/packing", "internal/logic/scheduler/encode",
		"internal/logic/scheduler/index",
	},
	"internal/logic/scheduler/fleet": {
		"internal/cluster", "internal/logic/admission", "internal/logic/scheduler/devices",
		"internal/logic/scheduler/encode", "internal/logic/scheduler/index",
	},
	"internal/logic/scheduler/feasibility": {
		"internal/cluster", "internal/logic/scheduler/encode", "internal/logic/scheduler/fleet",
	},
	"internal/logic/scheduler/rank": {"internal/cluster", "internal/logic/packing", "internal/logic/scheduler/index"},
	"internal/logic/scheduler/taskclass": {
		"internal/cluster", "internal/logic/scheduler/devices", "internal/logic/scheduler/feasibility",
		"internal/logic/scheduler/fleet", "internal/logic/scheduler/index", "internal/logic/scheduler/rank",
	},
	"internal/logic/scheduler/evaluation": {
		"internal/cluster", "internal/logic/packing", "internal/logic/scheduler/devices",
		"internal/logic/scheduler/feasibility", "internal/logic/scheduler/fleet", "internal/logic/scheduler/index",
		"internal/logic/scheduler/rank", "internal/logic/scheduler/taskclass",
	},
	"internal/logic/scheduler/cycle": {
		"internal/cluster", "internal/logic/admission", "internal/logic/packing", "internal/logic/scheduler/devices",
		"internal/logic/scheduler/evaluation", "internal/logic/scheduler/feasibility", "internal/logic/scheduler/fleet",
		"internal/logic/scheduler/index", "internal/logic/scheduler/rank", "internal/logic/scheduler/taskclass",
	},
	"internal/logic/scheduler/window": {"internal/cluster", "internal/logic/scheduler/cycle"},
	"internal/logic/scheduler/preemption": {
		"internal/cluster", "internal/logic/admission", "internal/logic/scheduler/cycle",
		"internal/logic/scheduler/devices", "internal/logic/scheduler/fleet", "internal/logic/scheduler/index",
		"internal/logic/scheduler/rank", "internal/logic/scheduler/taskclass",
	},
	"internal/logic/scheduler": {
		"internal/cluster", "internal/logic/admission", "internal/logic/packing", "internal/logic/scheduler/...",
	},
	"internal/logic/advice":    {"internal/cluster", "internal/logic/admission", "internal/logic/scheduler"},
	"internal/logic/rebalance": {"internal/cluster", "internal/logic/scheduler"},

	// The effects: what the loops read, write and call. A driver imports its contract and the nouns. Packages that all
	// processes share (logs on disk, boot-time clock) count as nouns here.
	"internal/archive":      {"internal/shorten"},
	"internal/backup":       {"internal/pause"},
	"internal/bootstrap":    {"internal/cluster", "internal/pause", "internal/setup", "internal/ssh"},
	"internal/blockyaml":    {},
	"internal/boottime":     {},
	"internal/clause":       {},
	"internal/consulclient": {"internal/store/remote"},
	"internal/contexts":     {},
	"internal/discovery":    {"internal/cluster"},
	"internal/discovery/consul": {
		"internal/cluster", "internal/consulclient", "internal/discovery", "internal/store/remote",
	},
	"internal/discovery/discoverytest": {"internal/cluster", "internal/discovery", "internal/suite"},
	"internal/discovery/fake":          {"internal/discovery"},
	"internal/egress":                  {},
	"internal/enum":                    {},
	"internal/executor":                {"internal/cluster"},
	"internal/executor/containerd": {
		"internal/cluster", "internal/egress", "internal/executor", "internal/executor/containerd/collector",
		"internal/executor/containerd/registry", "internal/executor/containerd/runspec", "internal/executor/outlive",
		"internal/executor/usage", "internal/pause", "internal/plain",
	},
	"internal/executor/containerd/collector": {
		"internal/executor", "internal/executor/outlive", "internal/logs", "internal/pause",
	},
	"internal/executor/containerd/daemon":   {"internal/executor/outlive", "internal/pause"},
	"internal/executor/containerd/registry": {"internal/egress", "internal/plain"},
	"internal/executor/containerd/runspec":  {"internal/cluster", "internal/executor", "internal/executor/outlive"},
	"internal/executor/executortest": {
		"internal/cluster", "internal/executor", "internal/logs", "internal/pause", "internal/suite",
		"internal/yardstick",
	},
	"internal/executor/fake":    {"internal/cluster", "internal/executor", "internal/logs", "internal/pause"},
	"internal/executor/outlive": {"internal/executor"},
	"internal/executor/process": {
		"internal/cluster", "internal/executor", "internal/executor/outlive", "internal/executor/usage",
		"internal/logs", "internal/pause", "internal/pty",
	},
	"internal/executor/process/embedded":   {},
	"internal/executor/process/supervisor": {"internal/executor/process"},
	"internal/executor/usage":              {"internal/cluster", "internal/executor"},
	"internal/fields":                      {"internal/spelling"},
	"internal/freeport":                    {},
	"internal/heap":                        {},
	"internal/jsonfields":                  {},
	"internal/logs":                        {"internal/cluster"},
	"internal/manifest": {
		"internal/cluster", "internal/jsonfields", "internal/shorten", "internal/spelling", "internal/timetable",
	},
	"internal/measure": {"internal/cluster", "internal/egress", "internal/shorten"},
	"internal/pause":   {},
	"internal/peers": {
		"internal/cluster", "internal/pause", "internal/pki", "internal/store", "internal/transport",
	},
	"internal/pki":         {"internal/cluster", "internal/pause", "internal/privatefile", "internal/shorten"},
	"internal/plain":       {},
	"internal/privatefile": {},
	"internal/unixsocket":  {},
	"internal/pty":         {},
	"internal/publishing":  {"internal/cluster", "internal/store"},
	"internal/secrets":     {"internal/cluster", "internal/privatefile"},
	"internal/keyring": {
		"internal/cluster", "internal/pause", "internal/secrets", "internal/store",
	},
	"internal/reverse":    {"internal/pause"},
	"internal/scheduling": {"internal/cluster"},
	"internal/scheduling/schedulertest": {
		"internal/cluster", "internal/scheduling", "internal/suite", "internal/yardstick",
	},
	"internal/schema":         {"internal/cluster", "internal/enum", "internal/jsonfields"},
	"internal/selector":       {"internal/cluster"},
	"internal/setup":          {"internal/agent/facts", "internal/cluster"},
	"internal/shorten":        {},
	"internal/spelling":       {},
	"internal/ssh":            {},
	"internal/store":          {"internal/clause", "internal/cluster", "internal/store/recordjson"},
	"internal/store/batching": {"internal/store"},
	"internal/store/election": {"internal/clause", "internal/cluster", "internal/pause", "internal/store"},
	"internal/store/consul": {
		"internal/consulclient", "internal/pause", "internal/store", "internal/store/remote",
		"internal/store/snapshotfile",
	},
	"internal/store/consul/consultest": {"internal/store/remote/remotetest", "internal/testkit"},
	"internal/store/etcd": {
		"internal/pause", "internal/store", "internal/store/etcd/etcdlog", "internal/store/remote",
		"internal/store/snapshotfile",
	},
	"internal/store/etcd/etcdlog":      {"internal/shorten", "internal/store"},
	"internal/store/etcd/etcdtest":     {"internal/store/remote/remotetest", "internal/testkit"},
	"internal/store/memory":            {"internal/store", "internal/store/snapshotfile"},
	"internal/store/recordjson":        {"internal/cluster"},
	"internal/store/remote":            {},
	"internal/store/remote/remotetest": {},
	"internal/store/restore": {
		"internal/cluster", "internal/pause", "internal/store", "internal/store/election",
		"internal/store/snapshotfile",
	},
	"internal/store/snapshotfile": {"internal/store", "internal/version"},
	"internal/store/storetest": {
		"internal/store", "internal/store/election", "internal/store/snapshotfile", "internal/suite",
		"internal/yardstick",
	},
	"internal/suite":                {"internal/pause", "internal/yardstick"},
	"internal/telemetry":            {"internal/cluster", "internal/store"},
	"internal/thread":               {},
	"internal/timetable":            {"internal/shorten"},
	"internal/traces":               {"internal/cluster", "internal/shorten"},
	"internal/transport":            {"internal/cluster", "internal/logs"},
	"internal/transport/workertest": {"internal/cluster", "internal/suite", "internal/transport", "internal/yardstick"},
	"internal/version":              {},
	"internal/taskview":             {"api", "internal/cluster"},
	"internal/wording":              {"internal/cluster"},
	"internal/yardstick":            {"internal/pause"},

	// The inputs of decisions, for the leader and for views.
	"internal/observe": {
		"internal/clause", "internal/cluster", "internal/logic/admission", "internal/logic/reconciler",
		"internal/logic/scheduler", "internal/logic/watcher", "internal/store",
	},

	// The loops: snapshot, decide, commit. None imports another: they meet in the store. The
	// agent knows no store and no control plane.
	"internal/agent": {
		"internal/agent/...", "internal/archive", "internal/boottime", "internal/clause", "internal/cluster",
		"internal/discovery", "internal/executor", "internal/logic/lifecycle", "internal/logs", "internal/pause",
		"internal/plain", "internal/telemetry", "internal/transport", "internal/version",
	},
	"internal/agent/addresses": {"internal/agent/node", "internal/pause", "internal/transport"},
	"internal/agent/artifact": {
		"internal/archive", "internal/cluster", "internal/egress", "internal/pause", "internal/plain",
		"internal/privatefile", "internal/shorten",
	},
	"internal/agent/attempt": {
		"internal/cluster", "internal/executor", "internal/logic/lifecycle", "internal/shorten",
	},
	"internal/agent/checks":  {"internal/cluster", "internal/logic/lifecycle", "internal/plain", "internal/shorten"},
	"internal/agent/devices": {"internal/cluster"},
	"internal/agent/diskspace": {
		"internal/agent/artifact", "internal/agent/images", "internal/agent/machine", "internal/agent/node",
		"internal/cluster", "internal/executor",
	},
	"internal/agent/diskuse": {"internal/cluster", "internal/pause", "internal/thread"},
	"internal/agent/facts":   {"internal/cluster"},
	"internal/agent/files":   {},
	"internal/agent/hostapi": {
		"api", "internal/agent", "internal/apiserver/lists", "internal/apiserver/openapi", "internal/apiserver/respond",
		"internal/apiserver/route", "internal/apiserver/strictjson", "internal/cluster",
		"internal/logic/scheduler/devices", "internal/pki", "internal/transport", "internal/unixsocket",
	},
	"internal/agent/images": {
		"internal/agent/artifact", "internal/agent/attempt", "internal/agent/machine", "internal/agent/node",
		"internal/agent/secrets", "internal/cluster", "internal/executor", "internal/plain", "internal/transport",
	},
	"internal/agent/inside": {"internal/executor", "internal/executor/outlive", "internal/thread"},
	"internal/agent/machine": {
		"internal/agent/devices", "internal/agent/facts", "internal/agent/network", "internal/agent/node",
		"internal/cluster", "internal/executor", "internal/pause", "internal/plain",
	},
	"internal/agent/names": {"internal/pause"},
	"internal/agent/nameserver": {
		"internal/agent/addresses", "internal/agent/names", "internal/agent/node", "internal/cluster",
		"internal/executor",
	},
	"internal/agent/network": {"internal/cluster", "internal/executor/outlive", "internal/thread"},
	"internal/agent/node":    {"internal/agent/attempt", "internal/clause", "internal/executor", "internal/pause"},
	"internal/agent/pins": {
		"internal/agent/attempt", "internal/agent/devices", "internal/agent/machine", "internal/agent/node",
		"internal/cluster", "internal/executor",
	},
	"internal/agent/ports": {"internal/executor/outlive"},
	"internal/agent/registrar": {
		"internal/agent/attempt", "internal/agent/node", "internal/cluster", "internal/discovery", "internal/hinted",
		"internal/pause", "internal/plain",
	},
	"internal/agent/reports": {
		"internal/agent/node", "internal/agent/state", "internal/agent/usage", "internal/cluster", "internal/transport",
	},
	"internal/agent/requests": {"internal/cluster"},
	"internal/agent/secrets": {
		"internal/agent/attempt", "internal/agent/files", "internal/agent/node", "internal/cluster",
		"internal/executor", "internal/pause", "internal/transport",
	},
	"internal/agent/services": {
		"internal/agent/addresses", "internal/agent/attempt", "internal/agent/files", "internal/agent/node",
		"internal/cluster", "internal/executor",
	},
	"internal/agent/state": {"internal/agent/attempt", "internal/cluster"},
	"internal/agent/streams": {
		"internal/agent/attempt", "internal/agent/images", "internal/agent/inside", "internal/agent/node",
		"internal/agent/task", "internal/agent/volumes", "internal/archive", "internal/cluster", "internal/executor",
		"internal/logs", "internal/plain", "internal/transport",
	},
	"internal/agent/task": {
		"internal/agent/artifact", "internal/agent/attempt", "internal/agent/checks", "internal/agent/devices",
		"internal/agent/machine", "internal/agent/nameserver", "internal/agent/node", "internal/agent/pins",
		"internal/agent/ports", "internal/agent/registrar", "internal/agent/reports", "internal/agent/secrets",
		"internal/agent/services", "internal/agent/state", "internal/agent/volumes", "internal/clause",
		"internal/cluster", "internal/executor", "internal/logic/lifecycle", "internal/logs", "internal/pause",
		"internal/plain", "internal/telemetry", "internal/transport",
	},
	"internal/agent/usage": {
		"internal/agent/attempt", "internal/agent/facts", "internal/agent/node", "internal/cluster",
		"internal/executor", "internal/telemetry", "internal/transport",
	},
	"internal/agent/volumes": {
		"internal/agent/attempt", "internal/agent/diskuse", "internal/agent/node", "internal/cluster", "internal/pause",
		"internal/transport",
	},
	"internal/apiserver": {
		"api", "internal/apiserver/...", "internal/boottime", "internal/cluster", "internal/logic/...",
		"internal/logic/scheduler", "internal/manifest", "internal/observe", "internal/pki", "internal/privatefile",
		"internal/store", "internal/telemetry", "internal/transport", "internal/unixsocket", "internal/version",
		"internal/wording",
	},
	"internal/apiserver/access": {
		"api", "internal/apiserver/audit", "internal/apiserver/respond", "internal/apiserver/route",
		"internal/apiserver/snapshot", "internal/cluster", "internal/pause", "internal/pki", "internal/shorten",
		"internal/store", "internal/telemetry", "internal/transport", "internal/unixsocket",
	},
	"internal/apiserver/agentapi": {
		"api", "internal/apiserver/access", "internal/apiserver/draft", "internal/apiserver/respond",
		"internal/apiserver/route", "internal/apiserver/snapshot", "internal/apiserver/strictjson", "internal/cluster",
		"internal/logic/reconciler", "internal/logic/scheduler", "internal/observe", "internal/store",
		"internal/transport",
	},
	"internal/apiserver/audit": {},
	"internal/apiserver/backend": {
		"internal/apiserver/draft", "internal/apiserver/lists", "internal/apiserver/respond",
		"internal/apiserver/snapshot", "internal/cluster",
	},
	"internal/apiserver/catalog": {
		"api", "internal/apiserver/access", "internal/apiserver/agentapi", "internal/apiserver/backend",
		"internal/apiserver/draft", "internal/apiserver/lists", "internal/apiserver/respond",
		"internal/apiserver/route", "internal/apiserver/strictjson", "internal/cluster", "internal/observe",
		"internal/store",
	},
	"internal/apiserver/control": {
		"api", "internal/apiserver/audit", "internal/apiserver/backend", "internal/apiserver/draft",
		"internal/apiserver/lists", "internal/apiserver/respond", "internal/apiserver/route",
		"internal/apiserver/snapshot", "internal/apiserver/strictjson", "internal/cluster", "internal/pause",
		"internal/pki", "internal/store",
	},
	"internal/apiserver/credentials": {
		"api", "internal/apiserver/access", "internal/apiserver/backend", "internal/apiserver/draft",
		"internal/apiserver/lists", "internal/apiserver/respond", "internal/apiserver/route",
		"internal/apiserver/snapshot", "internal/apiserver/strictjson", "internal/cluster", "internal/pki",
		"internal/store",
	},
	"internal/apiserver/draft": {
		"api", "internal/apiserver/access", "internal/apiserver/respond", "internal/apiserver/snapshot",
		"internal/apiserver/strictjson", "internal/cluster", "internal/measure", "internal/store", "internal/telemetry",
		"internal/timetable",
	},
	"internal/apiserver/eventlog": {
		"api", "internal/apiserver/access", "internal/apiserver/lists", "internal/apiserver/rendition",
		"internal/apiserver/respond", "internal/apiserver/route", "internal/apiserver/snapshot", "internal/cluster",
		"internal/store",
	},
	"internal/apiserver/lists": {
		"api", "internal/apiserver/access", "internal/apiserver/rendition", "internal/apiserver/respond",
		"internal/apiserver/route", "internal/apiserver/snapshot",
	},
	"internal/apiserver/domainapi": {
		"api", "internal/apiserver/backend", "internal/apiserver/draft", "internal/apiserver/lists",
		"internal/apiserver/respond", "internal/apiserver/route", "internal/apiserver/strictjson",
		"internal/apiserver/views", "internal/cluster", "internal/store",
	},
	"internal/apiserver/nodeapi": {
		"api", "internal/apiserver/access", "internal/apiserver/backend", "internal/apiserver/draft",
		"internal/apiserver/lists", "internal/apiserver/respond", "internal/apiserver/route",
		"internal/apiserver/strictjson", "internal/apiserver/views", "internal/cluster", "internal/store",
	},
	"internal/apiserver/openapi": {
		"api", "internal/apiserver/route", "internal/blockyaml", "internal/cluster", "internal/schema",
	},
	"internal/apiserver/planning": {
		"api", "internal/apiserver/backend", "internal/apiserver/draft", "internal/apiserver/lists",
		"internal/apiserver/respond", "internal/apiserver/route", "internal/apiserver/strictjson",
		"internal/apiserver/views", "internal/cluster", "internal/logic/lifecycle", "internal/logic/rebalance",
		"internal/logic/reconciler", "internal/logic/scheduler", "internal/logic/scheduler/feasibility",
		"internal/observe", "internal/store",
	},
	"internal/apiserver/rendition": {"internal/cluster", "internal/store"},
	"internal/apiserver/respond":   {"api", "internal/cluster", "internal/shorten", "internal/store"},
	"internal/apiserver/route": {
		"internal/apiserver/respond", "internal/apiserver/strictjson", "internal/cluster", "internal/selector",
		"internal/spelling",
	},
	"internal/apiserver/snapshot": {
		"internal/apiserver/respond", "internal/apiserver/route", "internal/cluster", "internal/store",
	},
	"internal/apiserver/status": {
		"api", "internal/apiserver/access", "internal/apiserver/backend", "internal/apiserver/control",
		"internal/apiserver/credentials", "internal/apiserver/planning", "internal/apiserver/respond",
		"internal/apiserver/route", "internal/apiserver/views", "internal/cluster", "internal/publishing",
		"internal/store", "internal/version",
	},
	"internal/apiserver/schedulingapi": {
		"api", "internal/apiserver/access", "internal/apiserver/backend", "internal/apiserver/draft",
		"internal/apiserver/respond", "internal/apiserver/route", "internal/apiserver/strictjson", "internal/cluster",
		"internal/scheduling", "internal/store",
	},
	"internal/apiserver/starts": {
		"internal/cluster", "internal/logic/admission", "internal/logic/forecast", "internal/logic/scheduler",
		"internal/logic/scheduler/cycle",
		"internal/store",
	},
	"internal/apiserver/strictjson": {
		"api", "internal/apiserver/respond", "internal/cluster", "internal/jsonfields", "internal/shorten",
		"internal/spelling",
	},
	"internal/apiserver/views": {
		"api", "internal/apiserver/draft", "internal/apiserver/respond", "internal/apiserver/snapshot",
		"internal/apiserver/starts", "internal/cluster", "internal/logic/...", "internal/observe", "internal/store",
		"internal/taskview", "internal/wording",
	},
	"internal/apiserver/workload": {
		"api", "internal/apiserver/access", "internal/apiserver/agentapi", "internal/apiserver/backend",
		"internal/apiserver/catalog", "internal/apiserver/draft", "internal/apiserver/lists",
		"internal/apiserver/respond", "internal/apiserver/route", "internal/apiserver/snapshot",
		"internal/apiserver/strictjson", "internal/apiserver/trouble", "internal/apiserver/views", "internal/cluster",
		"internal/logic/reconciler", "internal/observe", "internal/selector", "internal/store", "internal/wording",
	},
	"internal/controlplane": {
		"internal/boottime", "internal/clause", "internal/cluster", "internal/controlplane/...", "internal/logic/...",
		"internal/observe", "internal/pause", "internal/scheduling", "internal/store", "internal/store/election",
		"internal/telemetry", "internal/timetable",
	},
	"internal/controlplane/crons": {
		"internal/cluster", "internal/controlplane/queue", "internal/logic/cron", "internal/logic/reconciler",
		"internal/store", "internal/timetable",
	},
	"internal/controlplane/explain": {"internal/cluster", "internal/logic/scheduler"},
	"internal/controlplane/external": {
		"internal/cluster", "internal/controlplane/fleetview", "internal/logic/reconciler", "internal/logic/scheduler",
		"internal/observe", "internal/scheduling", "internal/store",
	},
	"internal/controlplane/fleetview": {
		"internal/cluster", "internal/controlplane/nodewatch", "internal/controlplane/queue",
		"internal/logic/reconciler", "internal/logic/scheduler", "internal/observe", "internal/store",
	},
	"internal/controlplane/gates": {"internal/cluster", "internal/store"},
	"internal/controlplane/nodewatch": {
		"internal/clause", "internal/cluster", "internal/logic/watcher", "internal/observe", "internal/shorten",
		"internal/store",
	},
	"internal/controlplane/planetest": {"internal/store", "internal/store/memory"},
	"internal/controlplane/preemption": {
		"internal/cluster", "internal/controlplane/fleetview", "internal/controlplane/nodewatch",
		"internal/controlplane/queue", "internal/logic/admission", "internal/logic/reconciler",
		"internal/logic/scheduler", "internal/logic/scheduler/window", "internal/logic/watcher", "internal/observe",
		"internal/store",
	},
	"internal/controlplane/projection": {
		"internal/boottime", "internal/clause", "internal/cluster", "internal/controlplane/storeloss", "internal/pause",
		"internal/publishing", "internal/store",
	},
	"internal/controlplane/queue": {"internal/cluster", "internal/store"},
	"internal/controlplane/scaling": {
		"internal/cluster", "internal/controlplane/writes", "internal/logic/scaler", "internal/store",
	},
	"internal/controlplane/rebalancing": {
		"internal/cluster", "internal/logic/reconciler", "internal/logic/scheduler", "internal/observe",
		"internal/store",
	},
	"internal/controlplane/storeloss": {"internal/clause", "internal/cluster", "internal/store"},
	"internal/controlplane/writes": {
		"internal/cluster", "internal/controlplane/fleetview", "internal/controlplane/nodewatch",
		"internal/logic/reconciler", "internal/observe", "internal/store",
	},
	"internal/dispatcher": {
		"internal/boottime", "internal/clause", "internal/cluster", "internal/pause", "internal/shorten",
		"internal/store", "internal/telemetry", "internal/transport",
	},

	// A domain without machines, to find out what would become of it: the control plane and the API server over a
	// branch of a store.
	"internal/whatif": {
		"api", "api/client", "internal/apiserver", "internal/apiserver/planning", "internal/cluster",
		"internal/controlplane", "internal/logic/scheduler", "internal/store", "internal/thread", "internal/traces",
	},
}
