package harness

import (
	"os"
	"slices"

	"github.com/berthd/berth/internal/store/consul/consultest"
)

// StoreVariable is the kind of store of fleets that choose none: "consul" starts a server of Consul for each fleet.
// Without it the servers of a fleet are the members of a store of their own.
const StoreVariable = "BERTH_TEST_STORE"

// storeFlags are the flags with which a server reaches the store that StoreVariable names, unless its flags name one.
// The first call starts the store.
func (f *Fleet) storeFlags(flags []string) []string {
	f.tb.Helper()
	switch kind := os.Getenv(StoreVariable); {
	case kind == "", slices.Contains(flags, "--store"):
		return nil
	case kind != "consul":
		f.tb.Fatalf("%s is %q, want consul", StoreVariable, kind)
	}
	if f.consul == nil {
		f.consul = consultest.Start(f.tb, 1, consultest.Options{
			Host: f.StoreHost.Address, Prefix: f.StoreHost.Prefix,
			Cleanup: func(end func()) { f.endStore = end },
		})[0]
	}
	return []string{"--store", "consul://" + f.consul.Address}
}
