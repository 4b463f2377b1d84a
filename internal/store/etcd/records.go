package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berthd/berth/internal/store"
)

// page is the number of records in one request of List.
const page = 10_000

// records reads, writes and watches the records: most of store.Engine.
type records struct {
	*calls
	limits store.Limits
}

// Limits is part of store.Engine.
func (r *records) Limits() store.Limits { return r.limits }

// Read is part of store.Engine.
func (r *records) Read(ctx context.Context, key string) (store.Record, error) {
	if key == "" {
		return store.Record{}, fmt.Errorf("an empty key: %w", store.ErrNotFound)
	}
	if err := r.checkOpen(ctx); err != nil {
		return store.Record{}, err
	}
	response, err := retryRead(ctx, r.calls, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return r.client.Get(ctx, r.prefix+key)
	})
	if err != nil {
		return store.Record{}, r.readError(ctx, err)
	}
	if len(response.Kvs) == 0 {
		return store.Record{}, fmt.Errorf("key %q: %w", key, store.ErrNotFound)
	}
	return r.record(response.Kvs[0]), nil
}

// ReadTogether is part of store.TogetherReader.
func (r *records) ReadTogether(ctx context.Context, keys ...string) ([]store.Record, error) {
	if err := r.checkOpen(ctx); err != nil {
		return nil, err
	}
	gets := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		gets[i] = clientv3.OpGet(r.prefix + key)
	}
	response, err := retryRead(ctx, r.calls, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return r.client.Txn(ctx).Then(gets...).Commit()
	})
	if err != nil {
		return nil, r.readError(ctx, err)
	}
	records := make([]store.Record, len(keys))
	for i, part := range response.Responses {
		if found := part.GetResponseRange(); len(found.Kvs) > 0 {
			records[i] = r.record(found.Kvs[0])
		}
	}
	return records, nil
}

// List is part of store.Engine. It reads a large prefix in pages, all at the revision of the first.
func (r *records) List(ctx context.Context, prefix string) (store.Listing, error) {
	if err := store.CheckPrefix(prefix); err != nil {
		return store.Listing{}, err
	}
	for {
		if err := r.checkOpen(ctx); err != nil {
			return store.Listing{}, err
		}
		listing, err := r.list(ctx, prefix, page)
		switch {
		case err == nil:
			r.observe(listing.Revision)
			return listing, nil
		case errors.Is(err, rpctypes.ErrCompacted): // compacted between two pages: begin again
		default:
			return store.Listing{}, r.readError(ctx, err)
		}
	}
}

// Revision is part of store.Engine. It returns the revision of the store.
func (r *records) Revision(ctx context.Context, prefix string) (uint64, error) {
	if err := store.CheckPrefix(prefix); err != nil {
		return 0, err
	}
	if err := r.checkOpen(ctx); err != nil {
		return 0, err
	}
	revision, err := r.readRevision(ctx)
	if err != nil {
		return 0, r.readError(ctx, err)
	}
	r.observe(revision)
	return revision, nil
}

// list reads the records under a prefix in pages.
func (r *records) list(ctx context.Context, prefix string, page int64) (store.Listing, error) {
	var listing store.Listing
	err := r.scan(ctx, prefix, page, func(p *clientv3.GetResponse) error {
		if listing.Revision == 0 {
			listing.Revision = uint64(p.Header.Revision)
			listing.Records = make([]store.Record, 0, p.Count)
		}
		for _, kv := range p.Kvs {
			listing.Records = append(listing.Records, r.record(kv))
		}
		return nil
	})
	if err != nil {
		return store.Listing{}, err
	}
	return listing, nil
}

// scan passes the records under a prefix to visit, page by page, in the order of their keys and all as they stood at
// the revision of the first page. It returns etcd's own errors, and those of visit.
func (r *records) scan(ctx context.Context, prefix string, page int64, visit func(*clientv3.GetResponse) error,
	options ...clientv3.OpOption,
) error {
	from, end := r.prefix+prefix, clientv3.GetPrefixRangeEnd(r.prefix+prefix)
	if from == "" {
		from, end = "\x00", "\x00" // etcd's form of all keys
	}
	revision := int64(0)
	for {
		response, err := retryRead(ctx, r.calls, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return r.client.Get(ctx, from, append([]clientv3.OpOption{
				clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithRev(revision),
			}, options...)...)
		})
		if err != nil {
			return err
		}
		if revision == 0 {
			revision = response.Header.Revision
		}
		if err := visit(response); err != nil {
			return err
		}
		if !response.More {
			return nil
		}
		from = string(response.Kvs[len(response.Kvs)-1].Key) + "\x00"
	}
}
