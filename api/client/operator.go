package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/berthd/berth/api"
)

// ErrCutShort says that a snapshot is incomplete and must be discarded.
var ErrCutShort = errors.New("the snapshot did not arrive whole")

// Status returns the overall state, as the answering server sees it.
func (c *Client) Status(ctx context.Context) (v api.Status, err error) {
	_, err = c.call(ctx, get("status"), &v)
	return v, err
}

// DomainStatus returns the state of a domain, with the alarms of the whole.
func (c *Client) DomainStatus(ctx context.Context, domain string) (v api.Status, err error) {
	_, err = c.call(ctx, get("status").with(url.Values{"domain": {domain}}), &v)
	return v, err
}

// TroubleFilter selects the objects whose troubles are listed; an empty field selects all.
type TroubleFilter struct {
	// Kind is "service", "job", "cron", "node" or "task".
	Kind string
	// Cluster is the cluster of services, jobs and crons.
	Cluster string
	// Name is the name of the objects, and of a task its whole id. The kind "task" needs a name.
	Name string
}

// Troubles lists the objects with problems, the most urgent first.
func (c *Client) Troubles(ctx context.Context, f TroubleFilter, o ListOptions) (api.Page[api.Trouble], error) {
	q := url.Values{}
	for name, value := range map[string]string{"kind": f.Kind, "cluster": f.Cluster, "name": f.Name} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return list[api.Trouble](ctx, c, get("troubles").with(q), o)
}

// Servers lists the members of the control plane, by their ids.
func (c *Client) Servers(ctx context.Context, o ListOptions) (api.Page[api.ServerView], error) {
	return list[api.ServerView](ctx, c, get("servers"), o)
}

// PromoteServer gives a learner its vote in the store. A repetition is no error.
func (c *Client) PromoteServer(ctx context.Context, id string) (v api.ServerView, err error) {
	_, err = c.call(ctx, post(nil, "servers", id, "promote").once(), &v)
	return v, err
}

// RemoveServer removes a server from the store and deletes its record. With force it also removes a server whose loss
// leaves no quorum.
func (c *Client) RemoveServer(ctx context.Context, id string, force bool) error {
	r := request{method: http.MethodDelete, path: []string{"servers", id}}.once()
	if force {
		r = r.with(url.Values{"force": {"true"}})
	}
	_, err := c.call(ctx, r, nil)
	return err
}

// Recovery returns the state of a recovery: whether the store lost writes that agents have seen, and the operator's
// decision.
func (c *Client) Recovery(ctx context.Context) (v api.RecoveryView, err error) {
	_, err = c.call(ctx, get("recovery"), &v)
	return v, err
}

// Recover decides a pending recovery. A repetition of the same decision is no error.
func (c *Client) Recover(ctx context.Context, action api.RecoveryAction) (v api.RecoveryView, err error) {
	_, err = c.call(ctx, post(api.RecoveryRequest{Action: action}, "recovery").once(), &v)
	return v, err
}

// Reschedule lets the leader of a domain replace tasks of silent nodes for a while, despite a mass silence; 0 withdraws
// it.
func (c *Client) Reschedule(ctx context.Context, domain string, d time.Duration) (v api.DomainView, err error) {
	_, err = c.call(ctx, post(api.RescheduleRequest{For: api.Duration(d)}, "domains", domain, "reschedule").once(), &v)
	return v, err
}

// CordonNode keeps new tasks away from a node.
func (c *Client) CordonNode(ctx context.Context, name string, cond Condition) (api.NodeView, error) {
	return c.nodeAction(ctx, name, "cordon", nil, cond)
}

// UncordonNode allows new tasks on a node again.
func (c *Client) UncordonNode(ctx context.Context, name string, cond Condition) (api.NodeView, error) {
	return c.nodeAction(ctx, name, "uncordon", nil, cond)
}

// DrainNode moves a node's tasks away. Drain in the node's view has the progress.
func (c *Client) DrainNode(ctx context.Context, name string, how api.NodeAction, cond Condition) (api.NodeView, error) {
	return c.nodeAction(ctx, name, "drain", how, cond)
}

// UndrainNode ends a drain. A node that was cordoned before stays cordoned.
func (c *Client) UndrainNode(ctx context.Context, name string, cond Condition) (api.NodeView, error) {
	return c.nodeAction(ctx, name, "undrain", nil, cond)
}

// ForgetNode declares that a machine never returns. Its tasks are replaced and its records removed. With force it also
// forgets a node that is not known to be down.
func (c *Client) ForgetNode(ctx context.Context, name string, force bool, cond Condition) (api.NodeView, error) {
	return c.nodeAction(ctx, name, "forget", api.NodeAction{Force: force}, cond)
}

// TaintNode adds taints to a node. A taint with the same key and effect gets the new value.
func (c *Client) TaintNode(ctx context.Context, name string, taints []api.Taint, cond Condition) (api.NodeView, error) {
	return c.nodeAction(ctx, name, "taint", api.TaintRequest{Taints: taints}, cond)
}

// UntaintNode removes taints from a node. Taints that the node does not have are no error.
func (c *Client) UntaintNode(ctx context.Context, name string, taints []api.TaintKey, cond Condition) (api.NodeView,
	error,
) {
	return c.nodeAction(ctx, name, "untaint", api.UntaintRequest{Taints: taints}, cond)
}

// ReservePorts keeps ports of a node from tasks, beside those that the node has reserved already. A task that has one
// of them keeps it.
func (c *Client) ReservePorts(ctx context.Context, name string, ports []api.PortRange, cond Condition) (api.NodeView,
	error,
) {
	return c.nodeAction(ctx, name, "reserve-ports", api.ReservedPortsRequest{Ports: ports}, cond)
}

// UnreservePorts allows ports to tasks again. Ports that the operator did not reserve are no error.
func (c *Client) UnreservePorts(ctx context.Context, name string, ports []api.PortRange, cond Condition) (api.NodeView,
	error,
) {
	return c.nodeAction(ctx, name, "unreserve-ports", api.ReservedPortsRequest{Ports: ports}, cond)
}

// PoolNode puts a node into a pool; the empty pool removes it from its pool.
func (c *Client) PoolNode(ctx context.Context, name, pool string, cond Condition) (api.NodeView, error) {
	return c.nodeAction(ctx, name, "pool", api.PoolRequest{Pool: pool}, cond)
}

// SetupNode records how a machine was added, with its domain and its pool. The node may be unknown so far.
func (c *Client) SetupNode(ctx context.Context, name string, r api.NodeSetupRequest, cond Condition) (api.NodeView,
	error,
) {
	return c.nodeAction(ctx, name, "setup", r, cond)
}

// DialNode makes a node a passive one that servers dial at the address, or without one a node whose agent dials. The
// node may be unknown so far.
func (c *Client) DialNode(ctx context.Context, name, address string, cond Condition) (api.NodeView, error) {
	return c.nodeAction(ctx, name, "dial", api.NodeDialRequest{Dial: address}, cond)
}

// DomainNode gives a node to a domain. Its present domain drains it first; by force the next one takes it at once.
func (c *Client) DomainNode(ctx context.Context, name, domain string, force bool, cond Condition) (api.NodeView,
	error,
) {
	return c.nodeAction(ctx, name, "domain", api.NodeDomainRequest{Domain: domain, Force: force}, cond)
}

func (c *Client) nodeAction(ctx context.Context, name, verb string, body any, cond Condition) (v api.NodeView,
	err error,
) {
	_, err = c.call(ctx, post(body, "nodes", name, verb).given(cond).once(), &v)
	return v, err
}

// Settings returns the settings of the answering server, without secrets.
func (c *Client) Settings(ctx context.Context) (v api.Settings, err error) {
	_, err = c.call(ctx, get("config"), &v)
	return v, err
}

// Ready returns the readiness of the answering server, part by part. An unready server is no error.
func (c *Client) Ready(ctx context.Context) (v api.Readiness, err error) {
	res, err := c.exchange(ctx, get("readyz").outside())
	if err != nil {
		return v, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusServiceUnavailable {
		return v, refusal(http.MethodGet, "/readyz", res)
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxProblem)).Decode(&v); err != nil {
		return v, fmt.Errorf("read readiness: %w", err)
	}
	return v, nil
}

// Metrics writes the metrics of the answering server, in the text format of Prometheus.
func (c *Client) Metrics(ctx context.Context, to io.Writer) error {
	return c.copy(ctx, get("metrics").outside(), to)
}

// Profile writes a profile of the answering server, in the format of `go tool pprof`: "goroutine", "heap", "allocs",
// "block", "mutex", "threadcreate", or "profile" for the CPU during the given time.
func (c *Client) Profile(ctx context.Context, name string, during time.Duration, to io.Writer) error {
	r := get("debug", "pprof", name).outside()
	if seconds := int(during.Round(time.Second).Seconds()); seconds > 0 {
		r = r.with(url.Values{"seconds": {strconv.Itoa(seconds)}})
	}
	return c.copy(ctx, r, to)
}

// Goroutines writes the stack of each goroutine of the answering server, as text.
func (c *Client) Goroutines(ctx context.Context, to io.Writer) error {
	return c.copy(ctx, get("debug", "pprof", "goroutine").outside().with(url.Values{"debug": {"2"}}), to)
}

// Snapshot writes a copy of the whole store, in the format of `berth operator snapshot`, and returns the lowest
// revision that it holds. After any error, such as ErrCutShort, the written data is no snapshot.
func (c *Client) Snapshot(ctx context.Context, to io.Writer) (revision uint64, err error) {
	res, err := c.send(ctx, get("snapshot"))
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(to, sum), res.Body); err != nil {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		return 0, fmt.Errorf("%w: %w", ErrCutShort, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != res.Trailer.Get(api.SnapshotSum) {
		return 0, fmt.Errorf("%w: its checksum differs from the server's", ErrCutShort)
	}
	revision, err = strconv.ParseUint(res.Header.Get(api.SnapshotRevision), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the snapshot's revision: %w", err)
	}
	return revision, nil
}

// copy writes the body of an answer.
func (c *Client) copy(ctx context.Context, r request, to io.Writer) error {
	res, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(to, res.Body); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("read the answer to %s %s: %w", r.method, c.url(r).Path, err)
	}
	return nil
}

// AdoptNode makes the servers the next owner of a node, with objects that its present owner showed. A repetition
// changes nothing.
func (c *Client) AdoptNode(ctx context.Context, r api.NodeAdoptRequest) (v api.NodeAdoptReply, err error) {
	_, err = c.call(ctx, post(r, "nodes", r.Objects.Node, "adopt"), &v)
	return v, err
}

// ReleaseNode gives a node up for another owner. The tasks of the node run on. A repetition changes nothing.
func (c *Client) ReleaseNode(ctx context.Context, name string, r api.NodeReleaseRequest) (v api.NodeReleaseReply,
	err error,
) {
	_, err = c.call(ctx, post(r, "nodes", name, "release"), &v)
	return v, err
}
