package status

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/control"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Gauges show the state of all domains at each scrape. Every server shows the state of its tables, and its own part of
// the store.
type Gauges struct {
	api    *API
	health *control.HealthAPI

	nodes, servers, leads, recovery, silence  *prometheus.Desc
	size, used, quota, free, lowWater         *prometheus.Desc
	writable, hasQuorum, alarms, tablesSynced *prometheus.Desc
	imagesRemoved, imagesFreed                *prometheus.Desc
}

// NewGauges returns the gauges of an API. The health reports when the tables can be read.
func NewGauges(a *API, health *control.HealthAPI) *Gauges {
	domain := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName("berth", "domain", name), help, labels, nil)
	}
	engine := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName("berth", "store", name), help, nil, nil)
	}
	return &Gauges{
		api: a, health: health,

		nodes:   domain("nodes", "Nodes, by domain and state.", "domain", "state"),
		servers: domain("servers", "Members of the control plane, by state as this server sees it.", "state"),
		leads:   domain("leader", "1 on the server that leads the domain, else 0.", "domain"),
		recovery: domain("recovery_needed",
			"1 while the store went back and the operator has not decided, else 0.", "domain"),
		silence: domain("mass_silence",
			"1 while so many nodes are silent that their tasks are not replaced, else 0.", "domain"),
		imagesRemoved: domain("images_removed",
			"Images that the present agents removed since they were started, because their disk was full."),
		imagesFreed:  domain("images_freed_bytes", "What the present agents freed by that."),
		size:         engine("database_bytes", "What the store's database takes on this server's disk."),
		used:         engine("database_used_bytes", "What of the store's database is in use."),
		quota:        engine("quota_bytes", "The most that the store's database may take."),
		free:         engine("disk_free_bytes", "What the disk of this server's store has left."),
		lowWater:     engine("low_water_bytes", "Below this much free disk no writes are taken."),
		writable:     engine("writable", "1 while the store takes writes, else 0."),
		hasQuorum:    engine("quorum", "1 while the store answers linearizable reads, else 0."),
		alarms:       engine("alarms", "Alarms that the store's engine has raised."),
		tablesSynced: engine("synced", "1 once the tables have read the whole store, else 0."),
	}
}

// Describe implements prometheus.Collector.
func (g *Gauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		g.nodes, g.servers, g.leads, g.recovery, g.silence, g.size, g.used, g.quota, g.free, g.lowWater, g.writable,
		g.hasQuorum, g.alarms, g.tablesSynced, g.imagesRemoved, g.imagesFreed,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (g *Gauges) Collect(out chan<- prometheus.Metric) {
	put := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	if g.api.Reads.Tables == nil || g.health.TablesReady() != nil {
		put(g.tablesSynced, 0)
		return
	}
	put(g.tablesSynced, 1)
	a := g.api
	engine := a.Engine.Ask(context.Background()) // Ask has a timeout
	snap := a.Reads.Tables.Snapshot()
	v := a.status(snap, &engine, cluster.DefaultDomain)
	g.collectDomains(snap, put)
	states := map[api.ServerState]int{}
	for _, sv := range a.Servers.Views(snap, &engine) {
		states[sv.State]++
	}
	for _, state := range api.ServerState("").Values() {
		put(g.servers, float64(states[state]), string(state))
	}
	records := a.Views.At(snap).Records
	var removed int
	var freed cluster.Bytes
	for e := range snap.NodeStatuses() {
		if stats := records.Stats(e.Value.Name); stats != nil {
			removed, freed = removed+stats.ImagesRemoved, freed+stats.ImagesFreed
		}
	}
	put(g.imagesRemoved, float64(removed))
	put(g.imagesFreed, float64(freed))
	if st := v.Store; st != nil {
		put(g.size, float64(st.Size))
		put(g.used, float64(st.Used))
		put(g.quota, float64(st.Quota))
		put(g.free, float64(st.Free))
		put(g.lowWater, float64(st.LowWater))
		put(g.writable, truth(st.Writable))
		put(g.hasQuorum, truth(st.Quorum))
		put(g.alarms, float64(len(st.Alarms)))
	}
}

// collectDomains puts the gauges of each domain.
func (g *Gauges) collectDomains(snap *store.Snapshot, put func(d *prometheus.Desc, value float64, labels ...string)) {
	a := g.api
	nodes := views.CountNodesByDomain(snap)
	for _, domain := range snap.Domains() {
		for _, state := range cluster.NodeState("").Values() {
			put(g.nodes, float64(nodes[domain][state]), domain, string(state))
		}
		leader := views.LeaderOf(snap, domain)
		put(g.leads, truth(leader != nil && leader.ID != "" && leader.ID == a.ServerID), domain)
		e, ok := snap.Recovery(domain)
		put(g.recovery, truth(ok && e.Value.State == cluster.RecoveryNeeded), domain)
		put(g.silence, truth(a.Views.IsMassSilence(snap, domain)), domain)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
