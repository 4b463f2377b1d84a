package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/etcd/etcdlog"
)

// Health is the state of the disk, the database and the quorum.
type Health = store.EngineHealth

// healthLimit bounds each request of Health.
const healthLimit = time.Second

// healthCheck finds the state of the disk, the database and the quorum.
type healthCheck struct {
	*calls
	contacts *etcdlog.Contacts
}

// Health returns the state of the disk, the database and the quorum, as this member sees it, within about 3 s. It fails
// only if the engine is closed or ctx ends.
func (c *healthCheck) Health(ctx context.Context) (Health, error) {
	if err := c.checkOpen(ctx); err != nil {
		return Health{}, err
	}
	var h Health
	if c.server != nil {
		c.localHealth(&h)
	} else {
		c.remoteHealth(ctx, &h)
	}
	// 1. Is there a quorum?
	brief, cancel := context.WithTimeout(ctx, healthLimit)
	present, err := c.client.Get(brief, c.prefix+"berth", clientv3.WithCountOnly())
	cancel()
	if h.Quorum = err == nil; h.Quorum {
		h.Revision = uint64(present.Header.Revision)
	}
	// 2. Does etcd have alarms?
	if h.Quorum {
		brief, cancel := context.WithTimeout(ctx, healthLimit)
		alarms, err := c.client.AlarmList(brief)
		cancel()
		if err == nil {
			for _, a := range alarms.Alarms {
				h.Alarms = append(h.Alarms,
					store.EngineAlarm{Name: a.Alarm.String(), Member: strconv.FormatUint(a.MemberID, 16)})
			}
		}
	}
	h.Alarms = append(h.Alarms, c.contacts.Replaced()...)
	if err := c.checkOpen(ctx); err != nil {
		return Health{}, err
	}
	// 3. Would a write be accepted?
	h.Reason = c.refusalReason(&h)
	if denied, ok := errors.AsType[*store.DeniedError](c.authError(err)); ok {
		h.Reason = denied.Advice()
	}
	h.Writes = h.Reason == ""
	return h, nil
}

// localHealth fills in the values that this process knows without a request.
func (c *healthCheck) localHealth(h *Health) {
	server := c.server.Server
	h.Size, h.InUse, h.Quota = server.Backend().Size(), server.Backend().SizeInUse(), c.config.Quota
	h.LowWater = c.config.LowWater
	if free, _, err := c.space.free(c.config.Dir); err == nil {
		h.DiskFree = free
	}
	if id := server.Leader(); id != 0 {
		h.Leader = id.String()
	}
	h.Version = version.Version
}

// remoteHealth asks the endpoints in order, until one answers.
func (c *healthCheck) remoteHealth(ctx context.Context, h *Health) {
	for _, endpoint := range c.client.Endpoints() {
		brief, cancel := context.WithTimeout(ctx, healthLimit)
		status, err := c.client.Status(brief, endpoint)
		cancel()
		if err != nil {
			continue
		}
		h.Size, h.InUse, h.Quota = status.DbSize, status.DbSizeInUse, status.DbSizeQuota
		h.Version = status.Version
		if status.Leader != 0 {
			h.Leader = strconv.FormatUint(status.Leader, 16)
		}
		return
	}
}

// refusalReason returns why a write would be refused, or "".
func (c *healthCheck) refusalReason(h *Health) string {
	for _, a := range h.Alarms {
		switch a.Name {
		case etcdserverpb.AlarmType_NOSPACE.String():
			return fmt.Sprintf("the database of member %s reached its quota of %d MiB", a.Member, h.Quota>>20)
		case etcdserverpb.AlarmType_CORRUPT.String():
			return fmt.Sprintf("member %s has other data than the others", a.Member)
		}
	}
	if c.space != nil {
		if err := c.space.measureAndCheck(); errors.Is(err, store.ErrNoSpace) {
			return err.Error()
		}
	}
	if !h.Quorum {
		return store.ErrUnavailable.Error()
	}
	return ""
}
