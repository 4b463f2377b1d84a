package client

import (
	"context"
	"iter"
	"net/url"

	"github.com/berthd/berth/api"
)

// ClaimDomain makes the caller the scheduler of a domain that names it. The proposals that follow name the revision of
// the result. Proposals by an earlier claim are refused from then on.
func (c *Client) ClaimDomain(ctx context.Context, domain string, r api.ClaimRequest) (v api.DomainView, err error) {
	_, err = c.call(ctx, post(r, "domains", domain, "claim").once(), &v)
	return v, err
}

// SchedulingState yields the state of a domain for schedulers. Since, unless "", is a revision of it: only what changed
// since follows, or the whole state after a line with Reset. With follow, each change follows until the context ends,
// the leader of the domain changes, or the server stops; the caller then calls it again with the last revision. The
// last element holds the error, if one ended the state early.
func (c *Client) SchedulingState(ctx context.Context, domain, since string, follow bool,
) iter.Seq2[api.SchedulingLine, error] {
	q := url.Values{}
	if since != "" {
		q.Set("since", since)
	}
	if follow {
		q.Set("follow", "true")
	}
	return lines[api.SchedulingLine](ctx, c, get("domains", domain, "state").with(q), "state of the domain "+domain)
}

// Propose sends a proposal. Each command has a result. An error of the status 409 says that another scheduler holds the
// domain, and names it. With dryRun, the proposal is only checked, and needs no claim.
func (c *Client) Propose(ctx context.Context, domain string, p api.Proposal, dryRun bool,
) (answer api.ProposalAnswer, err error) {
	r := post(p, "domains", domain, "proposals").once()
	if dryRun {
		r = r.with(url.Values{"dry_run": {"true"}})
	}
	_, err = c.call(ctx, r, &answer)
	return answer, err
}
