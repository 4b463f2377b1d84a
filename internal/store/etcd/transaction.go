package etcd

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/berthd/berth/internal/store"
)

// transaction builds an etcd transaction. A commit of a server under load has thousands of parts. Parts of one kind are
// allocated together, and newTransaction counts them first.
type transaction struct {
	prefix       string // the prefix of all keys in etcd
	groups       []nestedGroup
	compareParts []compareParts
	putParts     []putParts
	keys         []byte
	compares     []*pb.Compare   // of all groups, one after the other
	operations   []*pb.RequestOp // likewise
}

// nestedGroup is a transaction inside another transaction.
type nestedGroup struct {
	operation pb.RequestOp
	kind      pb.RequestOp_RequestTxn
	request   pb.TxnRequest
}

type compareParts struct {
	compare pb.Compare
	kind    pb.Compare_ModRevision
}

type putParts struct {
	operation pb.RequestOp
	kind      pb.RequestOp_RequestPut
	request   pb.PutRequest
}

// newTransaction allocates room for groups, and for the compares that they share.
func newTransaction(prefix string, groups []store.Group, shared map[store.Compare]bool) *transaction {
	compares, operations, puts, keys := len(shared), 0, 0, 0
	for c := range shared { // order-free: a sum
		keys += len(prefix) + len(c.Key)
	}
	for i := range groups {
		compares += len(groups[i].Compares)
		for _, c := range groups[i].Compares {
			keys += len(prefix) + len(c.Key)
		}
		operations += len(groups[i].Ops)
		for j := range groups[i].Ops {
			keys += len(prefix) + len(groups[i].Ops[j].Key)
			if !groups[i].Ops[j].Delete {
				puts++
			}
		}
	}
	return &transaction{
		prefix:       prefix,
		compareParts: make([]compareParts, 0, compares),
		putParts:     make([]putParts, 0, puts),
		keys:         make([]byte, 0, keys),
		compares:     make([]*pb.Compare, 0, compares),
		operations:   make([]*pb.RequestOp, 0, operations),
	}
}

// request returns the transaction of groups, each nested in it. The outer transaction compares what groups share, and
// each group the rest.
func (t *transaction) request(groups []store.Group, shared map[store.Compare]bool) *pb.TxnRequest {
	if len(groups) < 2 {
		return t.single(groups)
	}
	t.groups = make([]nestedGroup, len(groups))
	all := &pb.TxnRequest{Success: make([]*pb.RequestOp, len(groups))}
	for c := range shared { // order-free: all have to hold
		t.compares = append(t.compares, t.compare(c))
	}
	all.Compare = slices.Clip(t.compares)
	for i := range groups {
		n := &t.groups[i]
		t.fill(&n.request, &groups[i], shared)
		n.kind.RequestTxn = &n.request
		n.operation.Request = &n.kind
		all.Success[i] = &n.operation
	}
	return all
}

// single returns the transaction of one group, which needs no outer transaction, or of none. A transaction without
// writes counts a record: etcd would otherwise decide it by this member's data, which may be old.
func (t *transaction) single(groups []store.Group) *pb.TxnRequest {
	all := &pb.TxnRequest{}
	for i := range groups {
		t.fill(all, &groups[i], nil)
	}
	if len(all.Success) == 0 {
		all.Success = []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{
			RequestRange: &pb.RangeRequest{Key: []byte("berth"), CountOnly: true},
		}}}
	}
	return all
}

// fill makes the request of one group, without the compares that it shares with others.
func (t *transaction) fill(request *pb.TxnRequest, g *store.Group, shared map[store.Compare]bool) {
	compares, operations := len(t.compares), len(t.operations)
	for _, c := range g.Compares {
		if !shared[c] {
			t.compares = append(t.compares, t.compare(c))
		}
	}
	for i := range g.Ops {
		t.operations = append(t.operations, t.operation(&g.Ops[i]))
	}
	request.Compare, request.Success = slices.Clip(t.compares[compares:]), slices.Clip(t.operations[operations:])
}

func (t *transaction) compare(c store.Compare) *pb.Compare {
	t.compareParts = t.compareParts[:len(t.compareParts)+1]
	d := &t.compareParts[len(t.compareParts)-1]
	d.compare.Target, d.compare.Result, d.compare.Key = pb.Compare_MOD, pb.Compare_EQUAL, t.key(c.Key)
	d.kind.ModRevision = int64(c.Modified)
	if c.Modified == store.AnyModified {
		d.compare.Result, d.kind.ModRevision = pb.Compare_GREATER, 0
	}
	d.compare.TargetUnion = &d.kind
	return &d.compare
}

func (t *transaction) operation(w *store.Op) *pb.RequestOp {
	if w.Delete {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: t.key(w.Key)},
		}}
	}
	t.putParts = t.putParts[:len(t.putParts)+1]
	p := &t.putParts[len(t.putParts)-1]
	p.request.Key, p.request.Value = t.key(w.Key), w.Value
	p.kind.RequestPut = &p.request
	p.operation.Request = &p.kind
	return &p.operation
}

// key returns a copy of a key in the form that etcd stores.
func (t *transaction) key(key string) []byte {
	start := len(t.keys)
	t.keys = append(t.keys, t.prefix...)
	t.keys = append(t.keys, key...)
	return t.keys[start:len(t.keys):len(t.keys)]
}
