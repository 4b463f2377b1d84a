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

// Runner is an owner that requests a version of a definition. Its images are pulled with the secrets of its cluster, on
// nodes that are feasible for its tasks.
type Runner struct {
	cluster string
	rules   reconciler.PlacedTask
}

// RunnersOf returns the owners in a set by the versions that they request, in the order of their clusters. It leaves
// out clusters that the caller does not see: the write is refused later, and must not use their logins.
func RunnersOf(c *access.Caller, snap *store.Snapshot, set []draft.AppliedObject) map[cluster.Ref][]Runner {
	by := map[cluster.Ref][]Runner{}
	written := map[string][]cluster.Ref{} // by name: the versions of the set
	for _, d := range draft.DefinitionsOf(set) {
		if ref := d.Ref(); !slices.Contains(written[d.Name], ref) {
			written[d.Name] = append(written[d.Name], ref)
		}
	}
	add := func(in string, ref cluster.Ref, inline *cluster.InlineDefinition, p *cluster.Placement, job bool) {
		if !c.Sees(in) {
			return
		}
		if inline != nil {
			ref = inline.Reference()
		}
		r := Runner{cluster: in, rules: reconciler.PlacedTask{Placement: p, Job: job}}
		if e, ok := snap.Cluster(in); ok {
			r.rules.Common = e.Value.Constraints
		}
		for i := range set {
			if own, ok := set[i].Object.(*cluster.Cluster); ok && own.Name == in {
				r.rules.Common = own.Constraints
			}
		}
		if ref.Version != 0 {
			by[ref] = append(by[ref], r)
			return
		}
		// An owner that names no version takes the newest, which is the version written here.
		for _, version := range written[ref.Name] {
			by[version] = append(by[version], r)
		}
	}
	steps := func(in string, all []cluster.Step) {
		for i := range all {
			add(in, all[i].Definition, all[i].Template, &all[i].Placement, true)
		}
	}
	for i := range set {
		switch v := set[i].Object.(type) {
		case *cluster.Service:
			add(v.Cluster, v.Definition, v.Template, &v.Placement, false)
		case *cluster.Job:
			steps(v.Cluster, v.Steps)
		case *cluster.Cron:
			steps(v.Cluster, v.Job.Steps)
		}
	}
	for _, all := range by { // order-free: each on its own
		slices.SortStableFunc(all, func(a, b Runner) int { return cmp.Compare(a.cluster, b.cluster) })
	}
	return by
}

// lookup is an image whose digest is requested, with the secret for its registry. Without a secret the node uses its
// own login.
type lookup struct {
	image string // its normal name
	login transport.SecretName
}

// lookupOf returns the lookup for the image of a container. The secret is the one that the container names, or that the
// cluster of the first such owner has for the registry. The field who is that owner, or nil.
func lookupOf(snap *store.Snapshot, c *cluster.Container, runners []Runner) (l lookup, who *Runner) {
	l.image = cluster.NormalImage(c.Image)
	registry, _, _ := strings.Cut(l.image, "/")
	for i := range runners {
		in := runners[i].cluster
		if i > 0 && in == runners[i-1].cluster {
			continue
		}
		e, ok := snap.RegistrySecret(in, registry)
		if c.PullSecret != "" {
			e, ok = snap.Secret(in, c.PullSecret)
		}
		if ok && e.Value.Type == cluster.SecretRegistry && e.Value.Registry == registry {
			l.login = transport.SecretName{Cluster: in, Secret: e.Value.Name}
			return l, &runners[i]
		}
	}
	return l, nil
}

// Pins finds the digests of the tags in definitions.
type Pins struct {
	Tables snapshot.Tables
	Agents Streams
	// Node returns the nodes of a snapshot as the scheduler sees them, nil for an unknown node.
	Node func(*store.Snapshot) func(name string) *scheduler.Node
}

// Pin resolves the tags of new versions into digests, so that a version means the same image forever. Nodes ask the
// registries, because servers often reach no registry and have no logins. If the cluster has a secret for a registry, a
// node that is feasible for the tasks asks with that secret. The request names the secret and never contains it; the
// node's server gives the login in the node's session.
//
// Images without an answer within pinTime stay unpinned: a write must not depend on a registry that is down. The node
// that pulls first does not choose the digest, because the first attempts begin on several nodes together.
func (a *Pins) Pin(ctx context.Context, caller *access.Caller, definitions []*cluster.TaskDefinition,
	runners map[cluster.Ref][]Runner,
) Unpinned {
	snap := a.Tables.Snapshot()
	nodes := map[lookup][]string{} // the nodes to ask
	var added []*cluster.TaskDefinition
	node := a.Node(snap)
	sees := sync.OnceValue(func() func(cluster.Ref) bool { return caller.VisibleDefinitions(snap) })
	for _, d := range definitions {
		if isPresent(snap, d, sees) {
			continue
		}
		added = append(added, d)
		for i := range d.Containers {
			if c := &d.Containers[i]; c.Pinnable() {
				l, who := lookupOf(snap, c, runners[d.Ref()])
				if _, known := nodes[l]; !known || len(nodes[l]) == 0 {
					nodes[l] = pinnersFor(snap, node, who)
				}
			}
		}
	}
	var lookups []lookup
	for l, able := range nodes { // order-free: sorted next
		if len(able) > 0 {
			lookups = append(lookups, l)
		}
	}
	slices.SortFunc(lookups, func(a, b lookup) int {
		return cmp.Or(cmp.Compare(a.image, b.image), cmp.Compare(a.login.Cluster, b.login.Cluster),
			cmp.Compare(a.login.Secret, b.login.Secret))
	})
	ctx, cancel := context.WithTimeout(ctx, pinTime)
	defer cancel()
	var mu sync.Mutex
	digests, reasons := map[lookup]string{}, map[lookup]string{}
	for l, able := range nodes { // order-free: each on its own
		if len(able) == 0 && l.login.Secret != "" {
			reasons[l] = fmt.Sprintf(
				"no ready node that may run its tasks can query the registry with the secret %s",
				l.login.Secret)
		}
	}
	var asking sync.WaitGroup
	room := make(chan struct{}, maxConcurrentNodes)
	for _, l := range lookups {
		room <- struct{}{}
		asking.Go(func() {
			defer func() { <-room }()
			digest, err := a.lookUp(ctx, l, nodes[l])
			mu.Lock()
			defer mu.Unlock()
			if digests[l] = digest; err != nil {
				reasons[l] = respond.ProblemOf(err).Detail
			}
		})
	}
	asking.Wait()
	return pinAs(added, func(d *cluster.TaskDefinition, c *cluster.Container) (digest, why string) {
		l, _ := lookupOf(snap, c, runners[d.Ref()])
		return digests[l], reasons[l]
	})
}

// isPresent reports whether a version exists, or for a template, a version of its content that the caller sees.
func isPresent(snap *store.Snapshot, d *cluster.TaskDefinition, sees func() func(cluster.Ref) bool) bool {
	if d.Version == 0 {
		_, same := draft.SameVersion(snap, d, cluster.Ref{}, sees())
		return same
	}
	_, there := snap.Definition(d.Ref())
	return there
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
					why = append(why, fmt.Sprintf("image %s is not pinned to a digest: %s", c.Image, reason))
				}
			}
		}
		if len(why) > 0 {
			left[d.Ref()] = strings.Join(why, "; ")
		}
	}
	return left
}

// pinnersFor returns the nodes to ask. A request with a secret of an owner's cluster goes only to nodes that are
// feasible for the owner's tasks, because these nodes would get the login anyway.
func pinnersFor(snap *store.Snapshot, node func(string) *scheduler.Node, who *Runner) []string {
	if who == nil {
		return pinners(snap, nil)
	}
	return pinners(snap, func(name string) bool {
		n := node(name)
		if n == nil {
			return false
		}
		why, _ := reconciler.FindViolation(who.rules, n)
		return why == nil
	})
}

// lookUp asks nodes one after the other for the digest of an image. A node that holds the image loaded by hand answers
// without a digest.
func (a *Pins) lookUp(ctx context.Context, l lookup, nodes []string) (digest string, err error) {
	name := l.image
	ask := transport.ImagesRequest{Name: name}
	if l.login.Secret != "" {
		ask.Login = &l.login
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
			return "", respond.Problemf(http.StatusGatewayTimeout, "no node answered within %v", pinTime)
		}
	}
	return "", err
}
