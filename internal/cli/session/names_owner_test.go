package session

import (
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

func TestOwnerNames(t *testing.T) {
	for kind, want := range map[cluster.Kind]string{
		cluster.KindService: "default/service/web", cluster.KindJob: "default/job/web",
		cluster.KindCron: "default/cron/web",
	} {
		if got := OwnerName(cluster.OwnerRef{
			Kind: kind, Cluster: cluster.DefaultCluster,
			Name: "web",
		}).String(); got != want {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
	}
}
