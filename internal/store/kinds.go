package store

import (
	"reflect"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// The nouns of the layout: the first segments of all keys under the store's prefix. No other file spells them.
const (
	nounCluster     = "cluster"
	nounDefinition  = "task"
	nounService     = "service"
	nounJob         = "job"
	nounCron        = "cron"
	nounFired       = "fired"
	nounEndpoint    = "endpoint"
	nounRollout     = "rollout"
	nounScale       = "scale"
	nounPool        = "pool"
	nounProfile     = "profile"
	nounHost        = "host"
	nounNode        = "node"
	nounStatus      = "status"
	nounState       = "state"
	nounOutcome     = "attempt"
	nounPacked      = "packed"
	nounPlan        = "plan"
	nounRebalancing = "rebalance"
	nounReservation = "reservation"
	nounLeader      = "leader"
	nounServer      = "server"
	nounToken       = "token"
	nounDomain      = "domain"
	nounRecovery    = "recovery"
	nounSecret      = "secret"
	nounSecretKey   = "secretkey"
	nounMasterKey   = "masterkey"
	nounEvent       = "event"
	nounPublisher   = "publisher"
	nounTrim        = "trim"
)

// The writers of records, in the words of docs/reference/keys.md.
const (
	byUser         = "user"
	byControlPlane = "control plane"
	byAgent        = "agent"
	byLeaderPart   = "a part of the leader"
	byServer       = "the server"
	byAPI          = "API server"
	byAnyone       = "the writer of the commit"
)

// kind is one kind of records: how the tables keep, find and copy them, and which followers a change wakes.
type kind struct {
	// key is the form of the keys without the store's prefix, as docs/reference/keys.md names it: "service/<c>/<s>".
	key string
	// nested says that the keys have a second segment after the noun, unlike those of another kind with the same noun.
	nested bool
	// record is a nil pointer to the record type. It is nil for a mark, which is no record and is in no table.
	record any
	// writer is the first writer that docs/reference/keys.md names.
	writer string
	// progress says that the records contain the state of tasks or of the event log. All other kinds are specs,
	// settings and verdicts: see Follower.Specs.
	progress bool
	// apply applies a change of one record. rest is its key after the noun.
	apply func(s *state, rest string, c *Change)
	// find returns the revisions and the value of one record. Where the tables do not keep the revision of creation,
	// Created is that of the last write.
	find func(s *Snapshot, rest string) (Record, any, bool)
	// derive sets the tables of the kind in one snapshot from those in another. Kinds that share tables derive them
	// once.
	derive func(to, from *Snapshot, how derivation)
}

// noun returns the first segment of the keys.
func (k *kind) noun() string {
	noun, _, _ := strings.Cut(k.key, "/")
	return noun
}

// Kind describes a kind of records for the reference.
type Kind struct {
	// Key is the form of the keys without the store's prefix: "service/<c>/<s>".
	Key string
	// Record is the type of the records. It is nil for a mark, whose value is the text "true".
	Record reflect.Type
	// Writer is the first writer that docs/reference/keys.md names.
	Writer string
	// Sealed says that the records end with a seal (P3.9).
	Sealed bool
	// PacksSteps says that large records have their steps in a field "packed".
	PacksSteps bool
}

// Kinds returns all kinds of records, ordered as the keys are grouped.
func Kinds() []Kind {
	all := make([]Kind, len(kinds))
	for i, k := range kinds {
		all[i] = Kind{Key: k.key, Writer: k.writer, Sealed: carriesSeal(k.record), PacksSteps: packsSteps(k.record)}
		if k.record != nil {
			all[i].Record = reflect.TypeOf(k.record).Elem()
		}
	}
	return all
}

// kinds lists all kinds of records. A new kind is one entry here, a field of Snapshot for its table, and the accessors
// that its readers need. A test compares the list with the record types of internal/cluster and with the page of keys.
var kinds = []kind{
	// Specs of users, and the control plane's records about them.
	tabled(nounCluster+"/<c>", byUser, func(s *Snapshot) *table[cluster.Cluster] { return &s.clusters },
		topic(TopicClusters)),
	tabled(nounDefinition+"/<d>", byUser, func(s *Snapshot) *table[Newest] { return &s.newest }, nil),
	{
		key: nounDefinition + "/<d>/<version>", nested: true, record: (*cluster.TaskDefinition)(nil), writer: byUser,
		apply: (*state).definition, find: (*Snapshot).findDefinition,
		derive: func(to, from *Snapshot, how derivation) { to.definitions = derived(from.definitions, how) },
	},
	tabled(nounService+"/<c>/<s>", byUser, func(s *Snapshot) *table[cluster.Service] { return &s.services },
		ownerOf(cluster.KindService)),
	tabled(nounJob+"/<c>/<j>", byUser, func(s *Snapshot) *table[cluster.Job] { return &s.jobs },
		ownerOf(cluster.KindJob)),
	tabled(nounCron+"/<c>/<name>", byUser, func(s *Snapshot) *table[cluster.Cron] { return &s.crons },
		topic(TopicCrons)),
	tabled(nounFired+"/<c>/<name>", byControlPlane, func(s *Snapshot) *table[cluster.CronStatus] { return &s.fired },
		topic(TopicCrons)),
	tabled(nounEndpoint+"/<c>/<name>", byUser, func(s *Snapshot) *table[cluster.Endpoint] { return &s.endpoints },
		topic(TopicEndpoints)),
	tabled(nounRollout+"/<c>/<s>", byControlPlane, func(s *Snapshot) *table[cluster.Rollout] { return &s.rollouts },
		ownerOf(cluster.KindService)),
	tabled(nounScale+"/<c>/<s>", byControlPlane, func(s *Snapshot) *table[cluster.Scale] { return &s.scales },
		ownerOf(cluster.KindService)),

	// Nodes.
	tabled(nounPool+"/<p>", byUser, func(s *Snapshot) *table[cluster.Pool] { return &s.pools }, topic(TopicPools)),
	tabled(nounProfile+"/<p>/<version>", byUser, func(s *Snapshot) *table[cluster.Profile] { return &s.profiles },
		topic(TopicPools)),
	tabled(nounHost+"/<node>", byUser, func(s *Snapshot) *table[cluster.Host] { return &s.hosts }, (*delta).addNode),
	tabled(nounNode+"/<node>", byControlPlane, func(s *Snapshot) *table[cluster.Node] { return &s.nodes },
		(*delta).addNode),
	tabled(nounStatus+"/<node>", byAgent, func(s *Snapshot) *table[cluster.NodeStatus] { return &s.statuses },
		(*delta).addNode),
	tabled(nounRebalancing+"/<id>", byAPI, func(s *Snapshot) *table[cluster.Rebalancing] { return &s.rebalances },
		nil),
	tabled(nounReservation+"/<name>", byUser, func(s *Snapshot) *table[cluster.Reservation] { return &s.reserved },
		topic(TopicReservations)),

	// Attempts of tasks. The tables join the four records of an attempt in one row.
	{
		key: nounState + "/<node>/<task>", nested: true, record: (*cluster.Desired)(nil), writer: byControlPlane,
		progress: true, apply: (*state).desired, find: (*Snapshot).findDesired, derive: deriveAttempts,
	},
	// The mark of a scheduled task, see Prefix.Scheduled.
	{key: nounState + "/<task>", writer: byControlPlane, progress: true},
	{
		key: nounStatus + "/<node>/<task>", nested: true, record: (*cluster.Observed)(nil), writer: byAgent,
		progress: true, apply: (*state).observed, find: (*Snapshot).findObserved,
	},
	{
		key: nounOutcome + "/<task>/<n>", record: (*cluster.Outcome)(nil), writer: byControlPlane, progress: true,
		apply: (*state).outcome, find: (*Snapshot).findOutcome,
	},
	{
		key: nounPacked + "/<tasks>", record: (*cluster.PackedTasks)(nil), writer: byControlPlane, progress: true,
		apply:  (*state).packedTasks,
		find:   func(s *Snapshot, rest string) (Record, any, bool) { return found(s.packed.Get(rest)) },
		derive: func(to, from *Snapshot, how derivation) { to.packed = derived(from.packed, how) },
	},
	{
		key: nounPlan + "/<seq>", record: (*cluster.PlanRecord)(nil), writer: byControlPlane, progress: true,
		apply: (*state).plan, find: (*Snapshot).findPlan,
		derive: func(to, from *Snapshot, how derivation) { to.plans = derived(from.plans, how) },
	},

	// Servers and domains.
	tabled(nounLeader+"/<domain>", byServer, func(s *Snapshot) *table[cluster.Leader] { return &s.leaders },
		topic(TopicLeader)),
	tabled(nounServer+"/<id>", byServer, func(s *Snapshot) *table[cluster.Server] { return &s.servers },
		topic(TopicServers)),
	tabled(nounToken+"/<id>", byUser, func(s *Snapshot) *table[cluster.AccessToken] { return &s.tokens }, nil),
	tabled(nounDomain+"/<domain>", byUser, func(s *Snapshot) *table[cluster.Domain] { return &s.domains },
		topic(TopicDomain)),
	tabled(nounRecovery+"/<domain>", byControlPlane, func(s *Snapshot) *table[cluster.Recovery] {
		return &s.recoveries
	}, topic(TopicDomain)),

	// Secrets and the keys that seal them.
	tabled(nounSecret+"/<cluster>/<name>", byUser, func(s *Snapshot) *table[cluster.Secret] { return &s.secrets },
		topic(TopicSecrets)),
	tabled(nounSecretKey+"/<n>", byUser, func(s *Snapshot) *table[cluster.SecretKey] { return &s.secretKeys },
		topic(TopicSecrets)),
	tabled(nounMasterKey+"/<id>", byServer, func(s *Snapshot) *table[cluster.MasterKey] { return &s.masterKeys },
		topic(TopicSecrets)),

	// The event log, and how far it was published and trimmed. The cursor of a publisher moves with the events, so a
	// change wakes no follower.
	{
		key: nounEvent + "/<id>", record: (*cluster.EventBatch)(nil), writer: byAnyone, progress: true,
		apply:  (*state).event,
		find:   func(s *Snapshot, id string) (Record, any, bool) { return found(s.EventBatch(id)) },
		derive: deriveEvents,
	},
	progressing(tabled(nounPublisher+"/<name>", byLeaderPart, func(s *Snapshot) *table[cluster.Publisher] {
		return &s.publishers
	}, nil)),
	progressing(tabled(nounTrim+"/<noun>", byControlPlane, func(s *Snapshot) *table[cluster.EventTrim] {
		return &s.trims
	}, nil)),
}

// tabled returns a kind whose records are the entries of one table, by the rest of their key. changed, unless nil,
// reports a change to the followers.
func tabled[T any](key, writer string, in func(*Snapshot) *table[T], changed func(d *delta, rest string)) kind {
	return kind{
		key: key, record: (*T)(nil), writer: writer,
		apply: func(s *state, rest string, c *Change) {
			put(s, *in(s.Snapshot), rest, c)
			if changed != nil {
				changed(s.delta, rest)
			}
		},
		find:   func(s *Snapshot, rest string) (Record, any, bool) { return found((*in(s)).Get(rest)) },
		derive: func(to, from *Snapshot, how derivation) { *in(to) = derived(*in(from), how) },
	}
}

// progressing returns the kind as one whose records are no specs: see kind.progress.
func progressing(k kind) kind {
	k.progress = true
	return k
}

// topic returns a report that a topic changed.
func topic(t Topic) func(*delta, string) {
	return func(d *delta, _ string) { d.topics |= t }
}

// ownerOf returns a report that the service or job of the key changed.
func ownerOf(of cluster.Kind) func(*delta, string) {
	return func(d *delta, rest string) {
		if inCluster, name, ok := strings.Cut(rest, "/"); ok {
			d.addOwner(cluster.OwnerRef{Kind: of, Cluster: inCluster, Name: name})
		}
	}
}

// found returns the revisions and the value of an entry.
func found[T any](e Entry[T], ok bool) (Record, any, bool) {
	if !ok {
		return Record{}, nil, false
	}
	return Record{Created: e.Created, Modified: e.Modified}, e.Value, true
}

// nounKinds are the kinds of one noun: one or both are set.
type nounKinds struct{ plain, nested *kind }

// kindIndex finds the kind of a key.
type kindIndex map[string]nounKinds

// newKindIndex returns an index of a list of kinds.
func newKindIndex(list []kind) kindIndex {
	index := make(kindIndex, len(list))
	for i := range list {
		k := &list[i]
		of := index[k.noun()]
		if k.nested {
			of.nested = k
		} else {
			of.plain = k
		}
		index[k.noun()] = of
	}
	return index
}

// of returns the kind of a key without the store's prefix, and the rest of the key after the noun. The kind is nil for
// an unknown key: the layout may grow.
func (x kindIndex) of(key string) (k *kind, rest string) {
	noun, rest, _ := strings.Cut(key, "/")
	switch of := x[noun]; {
	case of.nested != nil && strings.Contains(rest, "/"):
		return of.nested, rest
	default:
		return of.plain, rest
	}
}
