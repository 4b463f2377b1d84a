package cluster

import (
	"slices"
	"strings"
	"time"
)

// CheckType is the way in which a check tests a task.
type CheckType string

// Check types.
const (
	CheckHTTP CheckType = "http" // 2xx is success, or one of the check's statuses
	CheckTCP  CheckType = "tcp"  // a connection is success
	CheckExec CheckType = "exec" // exit code 0 of a command in a container is success
	CheckGRPC CheckType = "grpc" // SERVING of grpc.health.v1.Health/Check is success
	CheckTTL  CheckType = "ttl"  // no probe: the task reports its own health, or another program does it for the task
)

// Values returns every CheckType, in the order of the constants.
func (CheckType) Values() []CheckType {
	return []CheckType{CheckHTTP, CheckTCP, CheckExec, CheckGRPC, CheckTTL}
}

// CheckMeaning is the consequence of a check's result.
type CheckMeaning string

// Meanings of checks.
const (
	// MeaningReadiness decides whether the task is healthy: whether rollouts continue, and whether its address is
	// published. It never restarts the task. An empty meaning means readiness.
	MeaningReadiness CheckMeaning = "readiness"
	// MeaningLiveness ends a failing task. Its restart policy decides whether it restarts in place.
	MeaningLiveness CheckMeaning = "liveness"
	// MeaningStartup ends a failing task, too. The check is over after its first success; the other checks wait for it.
	MeaningStartup CheckMeaning = "startup"
)

// Values returns every CheckMeaning, in the order of the constants.
func (CheckMeaning) Values() []CheckMeaning {
	return []CheckMeaning{MeaningReadiness, MeaningLiveness, MeaningStartup}
}

// Check tests a task repeatedly. One failure makes the check warning, FailAfter failures in a row make it failing, and
// one success makes it healthy. Its meaning decides the consequence.
type Check struct {
	Name string `json:"name"`
	// Type is the way in which the task is tested: an HTTP request, a TCP connection, a call over gRPC, a command, or
	// an update by the task itself.
	Type CheckType `json:"type"`
	// Meaning is what a failing check does: the task is not healthy (readiness), is restarted (liveness), or is not
	// tested otherwise yet (startup). Default readiness.
	Meaning CheckMeaning `json:"meaning,omitempty"`
	// Port is the name of the port of the task that is tested, for the types http, tcp and grpc.
	Port string `json:"port,omitempty"`
	// Path is the path and query of the request, for the type http. Default "/".
	Path string `json:"path,omitempty"`
	// Statuses lists the statuses and ranges of statuses that are a success, for http, such as [200-299, 401]. Default
	// 200-299. The check follows no redirect.
	Statuses []StatusRange `json:"statuses,omitempty"`
	// Service is the service name in the request of a grpc check. Empty means the server as a whole.
	Service string `json:"service,omitempty"`
	// TLS makes a grpc check use TLS. The check accepts any certificate: it tests the health of the task, not its
	// identity.
	TLS bool `json:"tls,omitempty"`
	// Command is run inside of the container, for the type exec. Code 0 is success.
	Command []string `json:"command,omitempty"`
	// Container is the name of the container in which Command runs. Default the first essential container.
	Container string `json:"container,omitempty"`
	// TTL is how long an update of a ttl check stays valid, and how long the first update may take. Default 30 s.
	TTL Duration `json:"ttl,omitempty"`
	// InitialDelay is the wait between the start and the first probe, or the start of the first TTL. Default 0.
	InitialDelay Duration `json:"initial_delay,omitempty"`
	// Interval is the time from one probe to the next, for all types but ttl. Default 5 s.
	Interval Duration `json:"interval,omitempty"`
	// Timeout is how long a probe may take before it counts as failed, for all types but ttl. Default 2 s.
	Timeout Duration `json:"timeout,omitempty"`
	// FailAfter is how many probes in a row must fail until the check is failing, for all types but ttl. Default 3.
	FailAfter int `json:"fail_after,omitempty"`
}

// EffectiveMeaning returns the check's meaning, never empty.
func (c *Check) EffectiveMeaning() CheckMeaning {
	if c.Meaning == "" {
		return MeaningReadiness
	}
	return c.Meaning
}

// HasCheck reports whether one of the definition's checks has the meaning.
func (d *TaskDefinition) HasCheck(m CheckMeaning) bool {
	return slices.ContainsFunc(d.Checks, func(c Check) bool { return c.EffectiveMeaning() == m })
}

// TTLUpdate is the status that an update of a ttl check carries.
type TTLUpdate string

// Words.
const (
	TTLPass TTLUpdate = "pass" // the check is healthy
	TTLWarn TTLUpdate = "warn" // it is in warning
	TTLFail TTLUpdate = "fail" // it is failing, without delay
)

// Values returns every Word, in the order of the constants.
func (TTLUpdate) Values() []TTLUpdate {
	return []TTLUpdate{TTLPass, TTLWarn, TTLFail}
}

// Known reports whether w is one of the words.
func (w TTLUpdate) Known() bool { return slices.Contains(w.Values(), w) }

// Bounds of checks of type ttl.
const (
	DefaultTTL = Duration(30 * time.Second)
	MinTTL     = Duration(5 * time.Second)
	MaxTTL     = Duration(24 * time.Hour)
	// MaxTTLMessage limits the message of an update, in bytes.
	MaxTTLMessage = 500
)

// MaxCheckService bounds the service in the request of a check of type grpc, in bytes.
const MaxCheckService = 256

func (c *Check) validate(k check, d *TaskDefinition) {
	k.at("name").name(c.Name)
	if c.Meaning != "" {
		oneOf(k.at("meaning"), c.Meaning)
	}
	k.at("initial_delay").span(c.InitialDelay, 0, MaxCheckInterval)
	if !oneOf(k.at("type"), c.Type) {
		return
	}
	c.validatePace(k)
	c.validatePort(k, d)
	if c.Type == CheckHTTP {
		k.at("path").must(strings.HasPrefix(c.Path, "/") && printable(c.Path) && !strings.Contains(c.Path, " "),
			"%q is not a path: want it to begin with \"/\" and to hold no spaces", clip(c.Path))
	} else {
		k.at("path").must(c.Path == "", "is for checks of type http only: leave it out")
	}
	c.validateStatuses(k)
	if c.Type == CheckGRPC {
		k.at("service").must(len(c.Service) <= MaxCheckService && printable(c.Service) &&
			!strings.Contains(c.Service, " "),
			"%q is not the name of a gRPC service: want at most %d bytes without spaces", clip(c.Service),
			MaxCheckService)
	} else {
		k.at("service").must(c.Service == "", "is for checks of type grpc only: leave it out")
		k.at("tls").must(!c.TLS, "is for checks of type grpc only: leave it out")
	}
	if c.Type != CheckExec {
		k.at("command").must(len(c.Command) == 0, "is for checks of type exec only: leave it out")
		k.at("container").must(c.Container == "", "is for checks of type exec only: leave it out")
		return
	}
	k.at("command").must(len(c.Command) > 0 && c.Command[0] != "",
		"is empty: a check of type exec needs a command, such as [test, -f, /ready]")
	k.arguments("command", c.Command)
	if in := d.container(c.Container); in == nil {
		k.at("container").fault("%q is not the name of one of the definition's containers", clip(c.Container))
	} else if in.Init {
		k.at("container").fault("%q is an init container, which has ended when checks run: name another", c.Container)
	}
}

// validatePace checks the interval and timeout of the check, or its TTL.
func (c *Check) validatePace(k check) {
	if c.Type == CheckTTL {
		k.at("ttl").span(c.TTL, MinTTL, MaxTTL)
		for _, f := range []struct {
			name string
			set  bool
		}{{"interval", c.Interval != 0}, {"timeout", c.Timeout != 0}, {"fail_after", c.FailAfter != 0}} {
			k.at(f.name).must(!f.set,
				"is not for checks of type ttl, which have no probe: such a check fails without an update "+
					"within its ttl")
		}
		return
	}
	k.at("ttl").must(c.TTL == 0, "is for checks of type ttl only: leave it out")
	k.at("interval").span(c.Interval, MinCheckInterval, MaxCheckInterval)
	k.at("timeout").must(c.Timeout >= MinCheckTimeout && c.Timeout <= c.Interval,
		"is %s, want a duration from %s to the interval of %s", c.Timeout, MinCheckTimeout, c.Interval)
	k.at("fail_after").within(c.FailAfter, 1, MaxFailAfter)
}

func (c *Check) validatePort(k check, d *TaskDefinition) {
	network := c.Type == CheckHTTP || c.Type == CheckTCP || c.Type == CheckGRPC
	switch {
	case network && c.Port == "":
		k.at("port").fault("is missing: a check of type %s needs the name of one of the definition's ports", c.Type)
	case network && d.port(c.Port) == nil:
		k.at("port").fault("%q is not the name of one of the definition's ports", clip(c.Port))
	case c.Type == CheckExec || c.Type == CheckTTL:
		k.at("port").must(c.Port == "", "is not for a check of type %s", c.Type)
	}
}

func (c *Check) setDefaults(d *TaskDefinition) {
	if c.Type == CheckTTL {
		setDefault(&c.TTL, DefaultTTL)
		return
	}
	setDefault(&c.Interval, DefaultCheckInterval)
	setDefault(&c.Timeout, min(DefaultCheckTimeout, c.Interval))
	setDefault(&c.FailAfter, DefaultFailAfter)
	switch c.Type {
	case CheckHTTP, CheckTCP, CheckGRPC:
		if c.Type == CheckHTTP {
			setDefault(&c.Path, "/")
		}
		if len(d.Ports) == 1 {
			setDefault(&c.Port, d.Ports[0].Name)
		}
	case CheckExec:
		if main := d.Main(); main != nil {
			setDefault(&c.Container, main.Name)
		}
	case CheckTTL:
	}
}
