package client

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/berthd/berth/api"
)

// ListOptions select a part of a list, and the time of the answer.
type ListOptions struct {
	// Index and Wait, if both are set, delay the answer until the list differs from the page with this Index, for at
	// most Wait.
	Index uint64
	Wait  time.Duration
	// Limit is the maximum size of the page, 0 for no limit. Cursor is Next of the page before.
	Limit  int
	Cursor string
	// Name, unless empty, selects the elements with that name. Lists of services, jobs, crons and nodes have it.
	Name string
	// Selector, unless empty, selects the elements by their labels: key=value, key!=value, key or !key, separated by
	// commas. Lists of services, jobs, crons, endpoints, nodes, task definitions and tasks have it. For tasks, the
	// labels of their services and jobs count.
	Selector string
	// Brief leaves the steps out of jobs, of which one may have 10,000. Lists of jobs have it.
	Brief bool
}

// add adds the options to a query.
func (o ListOptions) add(q url.Values) url.Values {
	if q == nil {
		q = url.Values{}
	}
	if o.Index != 0 && o.Wait != 0 {
		q.Set("index", strconv.FormatUint(o.Index, 10))
		q.Set("wait", o.Wait.String())
	}
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Selector != "" {
		q.Set("selector", o.Selector)
	}
	if o.Name != "" {
		q.Set("name", o.Name)
	}
	if o.Brief {
		q.Set("brief", "true")
	}
	if o.Cursor != "" {
		q.Set("cursor", o.Cursor)
	}
	return q
}

// All calls list page by page and returns all elements with the index of the first page.
func All[T any](ctx context.Context, o ListOptions, list func(context.Context, ListOptions) (api.Page[T], error)) ([]T,
	uint64, error,
) {
	var items []T
	var index uint64
	for {
		page, err := list(ctx, o)
		if err != nil {
			return nil, 0, err
		}
		if index == 0 {
			index = page.Index
		}
		items = append(items, page.Items...)
		if page.Next == "" {
			return items, index, nil
		}
		o.Cursor, o.Index, o.Wait = page.Next, 0, 0
	}
}

// list reads one page.
func list[T any](ctx context.Context, c *Client, r request, o ListOptions) (api.Page[T], error) {
	var page api.Page[T]
	_, err := c.call(ctx, r.with(o.add(r.query)), &page)
	return page, err
}
