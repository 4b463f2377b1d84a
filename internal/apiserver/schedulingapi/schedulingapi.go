// Package schedulingapi lets schedulers outside of Berth claim a domain, read its state, and propose placements, over
// HTTP. The leader of the domain answers: Leader does so on its server, and other servers pass requests on.
package schedulingapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Asker passes a request on to the leader of a domain, on another server. It answers the request, or returns an error.
type Asker interface {
	// Leads reports whether this server leads the domain.
	Leads(domain string) bool
	// AskLeader passes the request on, at a path of a Leader. A stream is open for long.
	AskLeader(w http.ResponseWriter, r *http.Request, domain, path string, stream bool) error
}

// API is the operations of schedulers.
type API struct {
	backend.Backend

	// View returns the view of a domain that exists.
	View func(snap *store.Snapshot, name string) api.DomainView
	// Leader answers for the domains that this server leads; nil if it never leads.
	Leader *Leader
	// Others passes requests on to other leaders; nil if there are no other servers.
	Others Asker
}

// mayPropose returns an error unless a caller is an operator, or has a token of the name that the domain gives its
// scheduler.
func mayPropose(r *http.Request, d *cluster.Domain) error {
	c := access.CallerOf(r.Context())
	external := d.External()
	if access.Rank(c.Role) >= access.Rank(cluster.RoleOperator) ||
		external != nil && external.Token != "" && c.Name == external.Token {
		return nil
	}
	if external == nil {
		return respond.Problemf(http.StatusForbidden,
			"only operators may do this in a domain without an external scheduler")
	}
	return respond.Problemf(http.StatusForbidden,
		"only operators, and the access token that the domain names (scheduler.token), may do this")
}

// domainOf returns the name and the record of the domain in the address. The record is nil for a domain without one.
func (a *API) domainOf(snap *store.Snapshot, r *http.Request) (string, store.Entry[cluster.Domain], error) {
	name := r.PathValue("domain")
	e, _ := snap.Domain(name)
	return name, e, a.KnownDomain(snap.Domains(), name)
}

// claim makes the caller the scheduler of the domain. The answer holds the revision that its proposals name.
func (a *API) claim(w http.ResponseWriter, r *http.Request) error {
	var asked api.ClaimRequest
	if err := strictjson.ReadBody(w, r, &asked); err != nil {
		return err
	}
	if err := asked.Validate(); err != nil {
		return respond.Invalid(cluster.FaultsOf(err))
	}
	name := r.PathValue("domain")
	by := access.CallerOf(r.Context()).Signature()
	var written *draft.Draft
	snap, err := a.Writer.Write(r.Context(), func(d *draft.Draft) error {
		_, e, err := a.domainOf(d.Snap, r)
		if err != nil {
			return err
		}
		if err := mayPropose(r, e.Value); err != nil {
			return err
		}
		external := e.Value.External()
		if external == nil || external.Name != asked.Name {
			return respond.Problemf(http.StatusConflict, "the domain %s is placed by the scheduler %s, not by %s: "+
				"change the field scheduler of the domain, or the name", name, e.Value.SchedulerName(), asked.Name)
		}
		written = d
		claim := cluster.SchedulerClaim{Holder: asked.Name, Instance: asked.Instance, Since: d.Now.UTC(), By: by}
		if e.Value.Claim != nil && claim.Instance != "" && e.Value.Claim.IsSame(&claim) {
			d.Require(d.Prefix.Domain(name), e.Modified)
			return nil
		}
		next := *e.Value
		next.Claim = &claim
		d.Put(d.Prefix.Domain(name), &next, e.Modified)
		d.Events = append(d.Events, cluster.Event{
			Type: "domain.claimed", Reason: cluster.ReasonScheduler,
			Message: fmt.Sprintf("the scheduler %s%s claims the domain %s", asked.Name,
				instanceText(asked.Instance), name),
		})
		return nil
	})
	if err != nil {
		return err
	}
	v := a.View(snap, name)
	v.Revision = written.RevisionOr(v.Revision)
	respond.SetETag(w, v.Revision)
	return respond.JSON(w, http.StatusOK, v)
}

func instanceText(instance string) string {
	if instance == "" {
		return ""
	}
	return " (" + instance + ")"
}

// readState streams the state of the domain.
func (a *API) readState(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	name, _, err := a.domainOf(snap, r)
	if err != nil {
		return err
	}
	return a.ask(w, r, name, "/"+name+"/state", true)
}

// propose has the leader answer a proposal.
func (a *API) propose(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	name, e, err := a.domainOf(snap, r)
	if err != nil {
		return err
	}
	if err := mayPropose(r, e.Value); err != nil {
		return err
	}
	var asked cluster.Proposal
	if err := strictjson.ReadBody(w, r, &asked); err != nil {
		return err
	}
	if err := asked.Validate(); err != nil {
		return respond.Invalid(cluster.FaultsOf(err))
	}
	body, err := json.Marshal(&asked)
	if err != nil {
		return err
	}
	access.ExchangeOf(r.Context()).Audited = len(asked.Commands) > 0 && !route.Flag(r, "dry_run")
	query := url.Values{}
	if route.Flag(r, "dry_run") {
		query.Set("dry_run", "true")
	}
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.URL.RawQuery = query.Encode()
	return a.ask(w, r, name, "/"+name+"/proposals", false)
}

// ask has the leader of a domain answer a request.
func (a *API) ask(w http.ResponseWriter, r *http.Request, domain, path string, stream bool) error {
	if a.Leader != nil && (a.Others == nil || a.Others.Leads(domain)) {
		return a.Leader.serve(w, r, domain, path)
	}
	if a.Others != nil {
		if err := a.Others.AskLeader(w, r, domain, path, stream); err == nil {
			return nil
		}
	}
	return noLeader(domain)
}

// noLeader is the answer while the domain has no leader that can be reached.
func noLeader(domain string) error {
	return respond.Problemf(http.StatusServiceUnavailable,
		"the leader of the domain %s is not reached, or another server is taking over: retry", domain)
}

// Routes returns the operations of schedulers.
func (a *API) Routes() []route.Route {
	const one = "/v1/domains/{domain}"
	return []route.Route{
		{
			Method: "POST", Path: one + "/claim", Name: "claimDomain", Role: cluster.RoleViewer,
			Summary: "Makes the caller the external scheduler of a domain. Its proposals name the revision of the " +
				"answer. Proposals by an earlier claim are refused from then on.",
			Body: reflect.TypeFor[api.ClaimRequest](), Reply: reflect.TypeFor[api.DomainView](), Serve: a.claim,
		},
		{
			Method: "GET", Path: one + "/state", Name: "readSchedulingState", Role: cluster.RoleViewer,
			Summary: "The state of a domain for schedulers, as lines: nodes with their free room and tasks, and " +
				"groups of tasks with their demands. With follow, then what changes.",
			Query: []route.Parameter{
				route.QueryParam("since", "string", "a revision of the state: only what changed since"),
				route.QueryParam("follow", "boolean", "continue with each change"),
			},
			Stream: route.MediaLines, Line: reflect.TypeFor[cluster.SchedulingLine](), Long: true, Serve: a.readState,
		},
		{
			Method: "POST", Path: one + "/proposals", Name: "propose", Role: cluster.RoleViewer, Limited: true,
			Quiet: true,
			Summary: "Proposes placements, moves and evictions of tasks. Each command is checked by the built-in " +
				"scheduler, and accepted or refused by itself. 409 says that another scheduler holds the domain.",
			Query: []route.Parameter{route.QueryParam("dry_run", "boolean", "only check the proposal; needs no claim")},
			Body:  reflect.TypeFor[cluster.Proposal](), Reply: reflect.TypeFor[cluster.ProposalAnswer](),
			Serve: a.propose,
		},
	}
}
