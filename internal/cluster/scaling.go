package cluster

import "time"

// ServiceMode says how many tasks a service has, and on which nodes.
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

// Scaling changes the count of a service between two bounds by the usage of its tasks, or by the clock.
type Scaling struct {
	// Min is the lowest count that scaling sets.
	Min int `json:"min"`
	// Max is the highest count that scaling sets.
	Max int `json:"max"`
	// Each target determines a count, and the highest counts. Without targets only schedules change the count.
	Targets []ScaleTarget `json:"targets,omitempty"`
	// Up limits how fast the count grows.
	Up ScalePace `json:"up,omitzero"`
	// Down limits how fast the count shrinks.
	Down ScalePace `json:"down,omitzero"`
	// Schedules set bounds at times. For each bound, the last active schedule in the list that names it counts.
	Schedules []ScaleSchedule `json:"schedules,omitempty"`
	// Suspended keeps the count unchanged.
	Suspended bool `json:"suspended,omitempty"`
}

// ScaleMetric is the metric of a target.
type ScaleMetric string

// Metrics of targets.
const (
	ScaleCPU    ScaleMetric = "cpu"    // usage in percent of the reservation, the mean of all tasks
	ScaleMemory ScaleMetric = "memory" // the same for memory
	// requests per second of one task, the mean of all tasks; see Port, Path and Series
	ScaleRequests   ScaleMetric = "requests"
	ScalePrometheus ScaleMetric = "prometheus" // the answer to Query, divided by the count unless Whole
)

// Values returns every ScaleMetric, in the order of the constants.
func (ScaleMetric) Values() []ScaleMetric {
	return []ScaleMetric{ScaleCPU, ScaleMemory, ScaleRequests, ScalePrometheus}
}

// ScaleTarget is a value that a metric should have for each task.
type ScaleTarget struct {
	// Metric is what is measured: the use of CPU or memory, requests, or the answer of a Prometheus server.
	Metric ScaleMetric `json:"metric"`
	// Target is the wanted value of the metric: percent, requests per second, or the unit of the query. More than 0.
	Target float64 `json:"target"`
	// Port is the name of the port on which the tasks serve their counters in the text format of Prometheus, for
	// requests. Default the first port.
	Port string `json:"port,omitempty"`
	// Path is the path of the page with the counters, for requests. Default "/metrics".
	Path string `json:"path,omitempty"`
	// Series is the name of the counters whose sum is the number of requests. Default "http_requests_total".
	Series string `json:"series,omitempty"`
	// URL is the address of a Prometheus server, for prometheus.
	URL string `json:"url,omitempty"`
	// Query is an expression in the language of Prometheus, with one number as the answer, for prometheus.
	Query string `json:"query,omitempty"`
	// Whole says that Target is for the service as a whole: the result is not divided by the count.
	Whole bool `json:"whole,omitempty"`
}

// ScalePace limits how fast a count changes in one direction.
type ScalePace struct {
	// Window stabilizes the count: growth uses the lowest count that was needed within it, shrinking the highest.
	// Default 0 up, 5 m down.
	Window *Duration `json:"window,omitempty"`
	// Step, unless nil, is the largest change within Every, at least 1.
	Step *Portion `json:"step,omitempty"`
	// Every is the span of time in which Step is the largest change. Default 1 m.
	Every Duration `json:"every,omitempty"`
}

// ScaleSchedule sets bounds or the count from each of its moments until the next moment of any schedule in the list.
type ScaleSchedule struct {
	// Cron is five fields: minute, hour, day of the month, month, day of the week; or "@daily" and its kin.
	Cron string `json:"cron"`
	// Zone is a name of the time zone database, such as "Europe/Paris". Default UTC.
	Zone string `json:"zone,omitempty"`
	// Min replaces the lowest count of scaling while the schedule is active.
	Min *int `json:"min,omitempty"`
	// Max replaces the highest count of scaling while the schedule is active.
	Max *int `json:"max,omitempty"`
	// Count is the count that is set once, at each moment of the schedule.
	Count *int `json:"count,omitempty"`
}

// Defaults of scaling.
const (
	DefaultScaleDownWindow = Duration(5 * time.Minute)
	DefaultScaleEvery      = Duration(time.Minute)
	DefaultRequestsPath    = "/metrics"
	DefaultRequestsSeries  = "http_requests_total"
)

// Scale is the current count of a service with scaling: the record scale/<cluster>/<service>. Writer: the control
// plane. Count replaces the service's own count while the service's count is From and its Recounted is the same. A user
// who sets the count restarts scaling from there.
type Scale struct {
	Count int `json:"count"`
	From  int `json:"from"`
	// Recounted is Service.Recounted; 0 in records of servers that did not know it.
	Recounted uint64    `json:"recounted,omitempty"`
	At        time.Time `json:"at"`
	// Message says why, such as "cpu 143% of the target of 70% for 4 tasks".
	Message string `json:"message,omitempty"`
	// Fired is the moment of the newest schedule that set the count.
	Fired time.Time `json:"fired,omitzero"`
	// Recent are the last changes, newest first, at most MaxScaleChanges. The pace is computed from them.
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

// AppliesTo reports whether the record is about the count that the service has in its spec: else the user has set that
// since. The record may be nil.
func (s *Scale) AppliesTo(svc *Service) bool {
	return s != nil && s.From == svc.Count && s.Recounted == svc.Recounted
}

// At returns the service with the count that scaling gives it: a copy, or the service itself where nothing changes it.
// The scale may be nil.
func (s *Service) At(scale *Scale) *Service {
	if s.Scaling == nil || s.Mode == ModeDaemon {
		return s
	}
	count := s.Count
	if scale.AppliesTo(s) {
		count = scale.Count
	}
	if count == s.Count {
		return s
	}
	at := *s
	at.Count = count
	return &at
}

// TaskStats is the resource usage of one attempt, as its agent last measured it. It is soft state.
type TaskStats struct {
	Task TaskID `json:"task"`
	UUID string `json:"uuid"`
	// CPU is the mean since the last measurement.
	CPU    MilliCPU `json:"cpu"`
	Memory Bytes    `json:"memory"`
	// Growth is the growth of memory per minute, on average over the last ten minutes; 0 in the first minute.
	Growth Bytes `json:"growth,omitempty"`
	// Requests is the rate of answered requests per second, -1 if nothing counts them.
	Requests float64 `json:"requests,omitempty"`
	// Detail, unless nil, holds recent rates of throttling, stalls, network and disks. It is nil from agents without
	// them.
	Detail *UseDetail `json:"detail,omitempty"`
	// Storage, unless nil, is the disk usage of the task's volumes that the agent keeps.
	Storage *StorageUse `json:"storage,omitempty"`
}

// Pressure says that a node is short of memory, and which attempt its agent suggests to move. It is soft state.
type Pressure struct {
	Since time.Time `json:"since"`
	// Message is the measurement, such as "memory: 96% of the machine is used, tasks stall 12% of the time".
	Message string `json:"message"`
	// Victim is the UUID of the attempt to move, or empty: among the attempts of lowest priority, the one that uses the
	// most beyond its reservation.
	Victim string `json:"victim,omitempty"` // its UUID
	Task   TaskID `json:"task,omitempty"`
	// Why explains the choice, with numbers.
	Why string `json:"why,omitempty"`
}
