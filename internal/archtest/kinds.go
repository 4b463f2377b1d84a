package archtest

// proof lists the packages that exist for tests: only tests and each other import them. No other code imports package
// testing.
var proof = []string{
	"internal/cli/clitest",
	"internal/controlplane/planetest",
	"internal/executor/executortest/benchmark",
	"internal/sim",
	"internal/sim/year",
	"internal/store/consul/consultest",
	"internal/store/etcd/etcdtest",
	"internal/store/remote/remotetest",
	"internal/store/storetest/enginetest",
	"internal/suite/suitetest",
	"internal/testkit",
	"internal/testkit/script",
	"internal/testkit/testsummary",
	"internal/transport/transporttest",
	"test/harness",
	"test/history",
	"test/load",
	"test/machines",
	"test/netlab",
}

// drivers maps each driver of the store to the packages that may name it outside their tests. All others use the
// contracts of internal/store.
var drivers = map[string][]string{
	"internal/store/consul": {"internal/serve/engines"},
	"internal/store/etcd":   {"internal/serve/engines"},
	"internal/store/memory": {
		"internal/bench/...", "internal/controlplane/planetest", "internal/sim", "internal/sim/year",
	},
}

// suites lists the conformance suites. Programs may run them, so they are no packages of proof. Like those, they must
// not sleep on the real clock (ADR 0082).
var suites = []string{
	"internal/discovery/discoverytest",
	"internal/executor/executortest",
	"internal/store/storetest",
	"internal/transport/workertest",
}

// testModules lists what every test, and every package of proof, may use besides.
var testModules = []string{
	"github.com/anishathalye/porcupine",
	"github.com/google/go-cmp",
	"github.com/rogpeppe/go-internal",
	"go.uber.org/goleak",
	"pgregory.net/rapid",
}
