package archtest

// modules maps each third-party module to the folders that may import it, so that
// to replace one is to change one folder.
var modules = map[string][]string{
	"cel.dev/cel-go":                     {"internal/measure"},
	"charm.land/bubbletea":               {"internal/cli/top"},
	"github.com/containernetworking/cni": {"internal/agent/network"},
	"github.com/vishvananda/netlink":     {"internal/agent/network"},
	"github.com/coder/websocket":         {"api/client", "internal/apiserver/...", "internal/cli/clitest"},
	"github.com/containerd":              {"internal/executor/containerd/...", "internal/bench/latency"},
	"github.com/distribution/reference":  {"internal/executor/containerd"},
	"github.com/goccy/go-yaml": {
		"internal/blockyaml", "internal/manifest", "internal/cli/clitest", "internal/cli/simulate",
	},
	"github.com/google/go-cmp": {"internal/executor/executortest", "internal/store/storetest"},
	"github.com/google/go-containerregistry": {
		"internal/executor/containerd", "internal/bench/busybox",
		"examples/images", "packaging/image", "test/e2e",
	},
	"github.com/google/uuid": {
		"internal/apiserver/...", "internal/bench/latency", "internal/controlplane", "internal/dispatcher",
		"internal/executor/containerd", "internal/peers", "internal/store/...", "internal/serve/datadir",
	},
	"github.com/hashicorp/consul/api": {
		"internal/consulclient", "internal/discovery/consul", "internal/store/consul/...",
	},
	"github.com/aws/aws-sdk-go-v2":   {"internal/agent/artifact", "test/e2e"},
	"github.com/klauspost/compress":  {"internal/agent/artifact"},
	"github.com/netresearch/go-cron": {"internal/timetable"},
	"github.com/opencontainers":      {"internal/executor/containerd/...", "internal/bench/latency"},
	"github.com/prometheus/client_golang": {
		"internal/apiserver/...", "internal/serve/node", "internal/serve/server", "internal/telemetry",
	},
	"github.com/prometheus/client_model":    {"internal/agent/requests"},
	"github.com/prometheus/common":          {"internal/agent/requests"},
	"github.com/santhosh-tekuri/jsonschema": {"internal/apiserver", "internal/manifest", "internal/refgen"},
	"github.com/sirupsen/logrus":            {"internal/executor/containerd"},
	"github.com/spf13/cobra":                {"internal/cli/..."},
	"github.com/spf13/pflag":                {"internal/cli/..."},
	"github.com/theory/jsonpath":            {"internal/cli/output"},
	"github.com/tidwall/btree":              {"internal/store"},
	"go.etcd.io/bbolt":                      {"internal/agent/state"},
	"go.etcd.io/etcd":                       {"internal/store/etcd/...", "test/e2e"},
	"go.opentelemetry.io/otel":              {"internal/telemetry"},
	"go.uber.org/zap":                       {"internal/store/etcd/..."},
	"golang.org/x/crypto":                   {"internal/ssh", "test/machines"},
	"golang.org/x/net":                      {"internal/agent/names", "test/e2e"},
	"golang.org/x/sync":                     {"internal/..."},
	"google.golang.org/grpc": {
		"internal/agent/checks", "internal/discovery/consul", "internal/store/etcd", "test/e2e/...",
	},
	"google.golang.org/protobuf": {"internal/store/etcd"},
	"golang.org/x/sys": {
		"internal/agent/...", "internal/bench/growth", "internal/boottime",
		"internal/executor/...", "internal/pty", "internal/setup", "internal/cli/operator", "internal/cli/output",
		"cmd/berth", "test/netlab",
	},
	"golang.org/x/term": {
		"internal/cli/apply", "internal/cli/login", "internal/cli/machine", "internal/cli/stream",
	},
	"tags.cncf.io/container-device-interface": {"internal/agent/devices", "internal/executor/containerd/..."},
}
