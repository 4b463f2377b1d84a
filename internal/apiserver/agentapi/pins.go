package agentapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// Runner is an owner that asks for a version of a definition: with the secrets of its cluster its images are pulled, on
// nodes where its tasks may stand.
type Runner struct {
	cluster  string
	standing reconciler.PlacedTask
}

// RunnersOf returns the owners in a set by the versions that they ask for, in the order of their clusters. Those of
// clusters that the caller does not see are left out: he is refused later, and moves no login before.
func RunnersOf(c *access.Caller, snap *store.Snapshot, set []draft.AppliedObject) map[cluster.Ref][]Runner {
	by := map[cluster.Ref][]Runner{}
	add := func(in string, ref cluster.Ref, p *cluster.Placement, job bool) {
		if !c.Sees(in) {
			return
		}
		r := Runner{cluster: in, standing: reconciler.PlacedTask{Placement: p, Job: job}}
		if e, ok := snap.Cluster(in); ok {
			r.standing.Common = e.Value.Constraints
		}
		for i := range set {
			if own := set[i].Cluster; own != nil && own.Name == in {
				r.standing.Common = own.Constraints
			}
		}
		if ref.Version != 0 {
			by[ref] = append(by[ref], r)
			return
		}
		// who names no version takes the newest, which is the one that is written here
		for _, d := range draft.DefinitionsOf(set) {
			if d.Name == ref.Name {
				by[d.Ref()] = append(by[d.Ref()], r)
			}
		}
	}
	steps := func(in string, all []cluster.Step) {
		for i := range all {
			add(in, all[i].Definition, &all[i].Placement, true)
		}
	}
	for i := range set {
		switch m := &set[i]; {
		case m.Service != nil:
			add(m.Service.Cluster, m.Service.Definition, &m.Service.Placement, false)
		case m.Job != nil:
			steps(m.Job.Cluster, m.Job.Steps)
		case m.Cron != nil:
			steps(m.Cron.Cluster, m.Cron.Job.Steps)
		}
	}
	for _, all := range by { // order-free: each by itself
		slices.SortStableFunc(all, func(a, b Runner) int { return cmp.Compare(a.cluster, b.cluster) })
	}
	return by
}

// lookup is an image whose digest is asked for, and the secret whose login is told to its registry; without one it is
// the node's own.
type lookup struct {
	image string // its normal name
	login transport.SecretName
}

// lookupOf returns how the image of a container is looked up: with the secret that it names or that a cluster has for
// the registry, of the first of the owners whose cluster has one. Who is that owner, or nil.
func lookupOf(snap *store.Snapshot, c *cluster.Container, runners []Runner) (look lookup, who *Runner) {
	look.image = cluster.NormalImage(c.Image)
	registry, _, _ := strings.Cut(look.image, "/")
	for i := range runners {
		in := runners[i].cluster
		e, ok := snap.RegistrySecret(in, registry)
		if c.PullSecret != "" {
			e, ok = snap.Secret(in, c.PullSecret)
		}
		if ok && e.Value.Type == cluster.SecretRegistry && e.Value.Registry == registry {
			look.login = transport.SecretName{Cluster: in, Secret: e.Value.Name}
			return look, &runners[i]
		}
	}
	return look, nil
}

// Pins finds out which images the tags in definitions stand for.
type Pins struct {
	Tables snapshot.Tables
	Agents Streams
	// Node returns nodes of a snapshot as the scheduler sees them, nil for one that is not known.
	Node func(*store.Snapshot) func(name string) *scheduler.Node
}

// Pin has nodes ask the registries which images the tags in new versions stand for, and writes the digests into the
// definitions: a version means one image for ever (ADR 0065). A registry for which the cluster has a secret is asked
// with that, by a node where the tasks may stand. What cannot be found out within pinTime stays as it is.
func (a *Pins) Pin(ctx context.Context, definitions []*cluster.TaskDefinition,
	runners map[cluster.Ref][]Runner,
) Unpinned {
	snap := a.Tables.Snapshot()
	nodes := map[lookup][]string{} // that are asked
	var fresh []*cluster.TaskDefinition
	node := a.Node(snap)
	for _, d := range definitions {
		if _, there := snap.Definition(d.Ref()); there {
			continue
		}
		fresh = append(fresh, d)
		for i := range d.Containers {
			if c := &d.Containers[i]; c.Pinnable() {
				look, who := lookupOf(snap, c, runners[d.Ref()])
				if _, known := nodes[look]; !known || len(nodes[look]) == 0 {
					nodes[look] = pinnersFor(snap, node, who)
				}
			}
		}
	}
	var looks []lookup
	for look, able := range nodes { // order-free: sorted next
		if len(able) > 0 {
			looks = append(looks, look)
		}
	}
	slices.SortFunc(looks, func(a, b lookup) int {
		return cmp.Or(cmp.Compare(a.image, b.image), cmp.Compare(a.login.Cluster, b.login.Cluster),
			cmp.Compare(a.login.Secret, b.login.Secret))
	})
	ctx, cancel := context.WithTimeout(ctx, pinTime)
	defer cancel()
	var mu sync.Mutex
	digests, reasons := map[lookup]string{}, map[lookup]string{}
	for look, able := range nodes { // order-free: each by itself
		if len(able) == 0 && look.login.Secret != "" {
			reasons[look] = fmt.Sprintf(
				"no node is ready that runs images and on which its tasks may be placed, to ask with the secret %s",
				look.login.Secret)
		}
	}
	var asking sync.WaitGroup
	room := make(chan struct{}, imagesAtOnce)
	for _, look := range looks {
		room <- struct{}{}
		asking.Go(func() {
			defer func() { <-room }()
			digest, err := a.lookUp(ctx, look, nodes[look])
			mu.Lock()
			defer mu.Unlock()
			if digests[look] = digest; err != nil {
				reasons[look] = respond.ProblemOf(err).Detail
			}
		})
	}
	asking.Wait()
	return pinAs(fresh, func(d *cluster.TaskDefinition, c *cluster.Container) (digest, why string) {
		look, _ := lookupOf(snap, c, runners[d.Ref()])
		return digests[look], reasons[look]
	})
}

// pinAs writes digests into definitions, and returns why some images have none.
func pinAs(definitions []*cluster.TaskDefinition,
	found func(*cluster.TaskDefinition, *cluster.Container) (digest, why string),
) Unpinned {
	left := Unpinned{}
	for _, d := range definitions {
		d.Pin(func(c *cluster.Container) string {
			digest, _ := found(d, c)
			return digest
		})
		var why []string
		for i := range d.Containers {
			if c := &d.Containers[i]; c.Pinnable() {
				if _, reason := found(d, c); reason != "" {
					why = append(why, fmt.Sprintf("image %s is not pinned to what it is now: %s", c.Image, reason))
				}
			}
		}
		if len(why) > 0 {
			left[d.Ref()] = strings.Join(why, "; ")
		}
	}
	return left
}

// pinnersFor returns the nodes that are asked: with a secret of an owner's cluster only such as its tasks may stand on,
// which would get the login with them.
func pinnersFor(snap *store.Snapshot, node func(string) *scheduler.Node, who *Runner) []string {
	if who == nil {
		return pinners(snap, nil)
	}
	return pinners(snap, func(name string) bool {
		n := node(name)
		if n == nil {
			return false
		}
		why, _ := reconciler.FindViolation(who.standing, n)
		return why == nil
	})
}

// lookUp asks nodes one after the other which digest an image has. One that holds it as loaded by hand answers that it
// has none.
func (a *Pins) lookUp(ctx context.Context, look lookup, nodes []string) (digest string, err error) {
	name := look.image
	ask := transport.ImagesRequest{Name: name}
	if look.login.Secret != "" {
		ask.Login = &look.login
	}
	for _, node := range nodes {
		var got []transport.Image
		got, err = askImages[[]transport.Image](ctx, a.Agents, node, transport.StreamImageResolve, ask)
		if err == nil && len(got) == 1 {
			if d := got[0].Digest; d == "" || cluster.ValidImage(name+"@"+d) {
				return d, nil
			}
			err = respond.Problemf(http.StatusBadGateway, "node %s answered with no digest", node)
		}
		if ctx.Err() != nil {
			return "", respond.Problemf(http.StatusGatewayTimeout, "no node could tell within %v", pinTime)
		}
	}
	return "", err
}
