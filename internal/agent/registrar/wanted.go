package registrar

import (
	"maps"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/discovery"
)

// Keys of the metadata of each registration.
const (
	metaCluster = "berth-cluster"
	metaService = "berth-service"
	metaTask    = "berth-task"
	metaAttempt = "berth-attempt"
	metaVersion = "berth-version"
	metaNode    = "berth-node"
)

// idPrefix begins the ID of each registration.
const idPrefix = "berth-"

// healthyText is the text of the state of a healthy task.
const healthyText = "healthy by the checks of Berth"

// Entry is a registration that an attempt should have, and its state.
type Entry struct {
	discovery.Registration

	State discovery.State
}

// Wanted returns the registrations that an attempt on a node should have now, in the order of its definition. The owner
// is that of the agent.
func Wanted(s *attempt.Status, facts *cluster.Facts, node, owner string) []Entry {
	if s.View == nil || !s.View.Record.IsRegistered(s.View.Definition) || facts.Address == "" {
		return nil
	}
	r, def := &s.View.Record, s.View.Definition
	d := &r.Desired
	state := discovery.State{Health: r.Health, Text: healthyText}
	if r.Health != cluster.HealthHealthy {
		state.Text = r.Note
	}
	entries := make([]Entry, 0, len(def.Discovery.Consul))
	for i := range def.Discovery.Consul {
		c := &def.Discovery.Consul[i]
		e := Entry{State: state, Registration: discovery.Registration{
			ID: registrationID(owner, s.UUID, i), Name: c.ServiceIn(d.Owner), Address: facts.Address,
			Port: d.Ports[c.Port], Tags: c.Tags, Meta: map[string]string{
				metaCluster: d.Owner.Cluster, metaService: d.Owner.Name, metaTask: string(d.Task),
				metaAttempt: strconv.Itoa(d.Attempt), metaVersion: d.Definition.String(), metaNode: node,
			},
		}}
		maps.Copy(e.Meta, c.Meta)
		if c.Checks == cluster.ConsulNative {
			e.Checks = nativeChecks(def, d.Ports, facts.Address)
		}
		entries = append(entries, e)
	}
	return entries
}

// nativeChecks returns the readiness checks of a definition for a system that makes them itself.
func nativeChecks(def *cluster.TaskDefinition, ports map[string]int, host string) (checks []discovery.Check) {
	for i := range def.Checks {
		c := &def.Checks[i]
		if c.EffectiveMeaning() != cluster.MeaningReadiness {
			continue
		}
		checks = append(checks, discovery.Check{
			Name: c.Name, Type: c.Type, Address: net.JoinHostPort(host, strconv.Itoa(ports[c.Port])), Path: c.Path,
			Service: c.Service, TLS: c.TLS, Interval: time.Duration(c.Interval), Timeout: time.Duration(c.Timeout),
			FailAfter: c.FailAfter,
		})
	}
	return checks
}

// registrationID returns the ID of a registration of an attempt. Another agent, or the next one after the data of this
// one were lost, has another owner and thus other IDs.
func registrationID(owner, uuid string, i int) string {
	return idPrefix + owner + "-" + uuid + "-" + strconv.Itoa(i)
}

// attemptOf returns the UUID of the attempt that a registration of the owner is for; ok is false for another ID.
func attemptOf(owner, id string) (uuid string, ok bool) {
	rest, ok := strings.CutPrefix(id, idPrefix+owner+"-")
	end := strings.LastIndexByte(rest, '-')
	if !ok || end < 1 {
		return "", false
	}
	return rest[:end], true
}

// Shown is what a registration shows of an attempt. While it is the same, the registrar need not look again.
type Shown struct {
	registered bool
	health     cluster.Health
}

// ShownOf returns what the registrations of an attempt show.
func ShownOf(v *attempt.View) Shown {
	if !v.Record.IsRegistered(v.Definition) {
		return Shown{}
	}
	return Shown{true, v.Record.Health}
}
