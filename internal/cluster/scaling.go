package cluster

import "time"

// ServiceMode says how many tasks a service has, and where.
type ServiceMode string

// Modes of services.
const (
	ModeReplicas ServiceMode = "replicas" // count tasks, anywhere; the default
	ModeDaemon   ServiceMode = "daemon"   // one task on each node that its constraints allow; count means nothing
)

// Values returns every ServiceMode, in the order of the constants.
func (ServiceMode) Values() []ServiceMode {
	return []ServiceMode{ModeReplicas, ModeDaemon}
}

// Scaling changes the count of a service between two bounds by what its tasks use, or by the clock.
type Scaling struct {
	Min int `json:"min"`
	Max int `json:"max"`
	// Targets each ask for a count; the highest counts. Without any, only schedules change the count.
	Targets []ScaleTarget `json:"targets,omitempty"`
	// Up and Down say how fast the count may grow and shrink.
	Up   ScalePace `json:"up,omitzero"`
	Down ScalePace `json:"down,omitzero"`
	// Schedules set bounds at times; of those that are in force the last one in the list that names a bound counts.
	Schedules []ScaleSchedule `json:"schedules,omitempty"`
	// Suspended leaves the count where it is.
	Suspended bool `json:"suspended,omitempty"`
}

// ScaleMetric is what a target looks at.
type ScaleMetric string

// Metrics of targets.
const (
	ScaleCPU    ScaleMetric = "cpu"    // used, in percent of what is reserved, the mean of all tasks
	ScaleMemory ScaleMetric = "memory" // the same for memory
	// requests a second of one task, the mean of all tasks; see Port, Path and Series
	ScaleRequests   ScaleMetric = "requests"
	ScalePrometheus ScaleMetric = "prometheus" // the answer to Query, divided by the count unless Whole
)

// Values returns every ScaleMetric, in the order of the constants.
func (ScaleMetric) Values() []ScaleMetric {
	return []ScaleMetric{ScaleCPU, ScaleMemory, ScaleRequests, ScalePrometheus}
}

// ScaleTarget is a value that a metric should have for each task.
type ScaleTarget struct {
	Metric ScaleMetric `json:"metric"`
	// Target is what the metric should be: percent, requests a second, or whatever the query gives. More than 0.
	Target float64 `json:"target"`
	// Port, Path and Series say where the tasks count their requests, for requests: a page in Prometheus' text format,
	// by default "/metrics" of the first port, and the sum of the counters "http_requests_total" on it.
	Port   string `json:"port,omitempty"`
	Path   string `json:"path,omitempty"`
	Series string `json:"series,omitempty"`
	// URL and Query are a Prometheus server and an expression, for prometheus.
	URL   string `json:"url,omitempty"`
	Query string `json:"query,omitempty"`
	// Whole says that Target is for the service as a whole: the answer is compared as it is.
	Whole bool `json:"whole,omitempty"`
}

// ScalePace says how fast a count changes in one direction.
type ScalePace struct {
	// Window is how long a wish must have stood: of all counts that were wished for within it the lowest is taken to
	// grow, the highest to shrink. Default 0 up, 5 m down.
	Window *Duration `json:"window,omitempty"`
	// Step, unless nil, is the most that changes within Every (default 1 m), at least 1.
	Step  *Portion `json:"step,omitempty"`
	Every Duration `json:"every,omitempty"`
}

// ScaleSchedule sets bounds or the count from a moment that comes again and again until the next such moment of any
// schedule in the list.
type ScaleSchedule struct {
	// Cron is five fields: minute, hour, day of the month, month, day of the week; or "@daily" and its kin.
	Cron string `json:"cron"`
	// Zone is a name of the time zone database, such as "Europe/Paris". Default UTC.
	Zone string `json:"zone,omitempty"`
	// Min and Max replace those of Scaling; Count is set once, at the moment.
	Min   *int `json:"min,omitempty"`
	Max   *int `json:"max,omitempty"`
	Count *int `json:"count,omitempty"`
}

// Defaults of scaling.
const (
	DefaultScaleDownWindow = Duration(5 * time.Minute)
	DefaultScaleEvery      = Duration(time.Minute)
	DefaultRequestsPath    = "/metrics"
	DefaultRequestsSeries  = "http_requests_total"
)

// Scale is the count that a service with scaling has now: the record scale/<cluster>/<service>. Writer: the control
// plane. While the service's own count is From and its Recounted the same, Count stands in for it; a user who sets the
// count begins anew from there.
type Scale struct {
	Count int `json:"count"`
	From  int `json:"from"`
	// Recounted is the service's of that name; 0 in records of servers that did not know of it.
	Recounted uint64    `json:"recounted,omitempty"`
	At        time.Time `json:"at"`
	// Message says why, such as "cpu 143% of the target of 70% for 4 tasks".
	Message string `json:"message,omitempty"`
	// Fired is the moment of the newest schedule that set the count.
	Fired time.Time `json:"fired,omitzero"`
	// Recent are the last changes, newest first, for the pace: at most MaxScaleChanges.
	Recent []ScaleChange `json:"recent,omitempty"`
}

// ScaleChange is a change of a count.
type ScaleChange struct {
	At   time.Time `json:"at"`
	From int       `json:"from"`
	To   int       `json:"to"`
}

// MaxScaleChanges bounds the changes that are remembered.
const MaxScaleChanges = 10

// StandsFor reports whether the record is about the count that the service has in its spec: else the user has set that
// since. The record may be nil.
func (s *Scale) StandsFor(svc *Service) bool {
	return s != nil && s.From == svc.Count && s.Recounted == svc.Recounted
}

// At returns the service with the count that scaling gives it: a copy, or the service itself where nothing changes it.
// The scale may be nil.
func (s *Service) At(scale *Scale) *Service {
	if s.Scaling == nil || s.Mode == ModeDaemon {
		return s
	}
	count := s.Count
	if scale.StandsFor(s) {
		count = scale.Count
	}
	if count == s.Count {
		return s
	}
	at := *s
	at.Count = count
	return &at
}

// TaskStats is what one attempt uses, as its agent last measured it. It is soft.
type TaskStats struct {
	Task TaskID `json:"task"`
	UUID string `json:"uuid"`
	// CPU is the mean since the last measurement.
	CPU    MilliCPU `json:"cpu"`
	Memory Bytes    `json:"memory"`
	// Growth is by how much memory grew in a minute, on average over the last ten; 0 for less than one minute of life.
	Growth Bytes `json:"growth,omitempty"`
	// Requests is how many a second it answered, -1 where nobody counts them.
	Requests float64 `json:"requests,omitempty"`
	// Detail, unless nil, tells of throttling, stalls, network and disks, as they were measured within the last while.
	// nil is also what an agent tells that does not know it.
	Detail *UseDetail `json:"detail,omitempty"`
	// Storage, unless nil, is what the volumes take that the agent keeps for the task.
	Storage *StorageUse `json:"storage,omitempty"`
}

// Pressure says that a node is short of memory, and what its agent suggests to move away. It is soft.
type Pressure struct {
	Since time.Time `json:"since"`
	// Message says what was measured, such as "memory: 96% of the machine is used, tasks stall 12% of the time".
	Message string `json:"message"`
	// Victim is the attempt to move, empty for none: of the lowest priority, and of those the one that uses the most
	// beyond what it reserved.
	Victim string `json:"victim,omitempty"` // its UUID
	Task   TaskID `json:"task,omitempty"`
	// Why says why that one, with numbers.
	Why string `json:"why,omitempty"`
}
