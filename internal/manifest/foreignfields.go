package manifest

import (
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// kubernetesFields are fields of workloads of Kubernetes.
func kubernetesFields() map[string]foreignField {
	return map[string]foreignField{
		"apiversion": {write: "leave it out: a document of Berth has kind and the fields of its kind"},
		"metadata":   {write: "write %s at the top level of the document", value: metadataOf},
		"spec":       {write: "write its fields at the top level of the document"},
		"status":     {write: "leave it out: Berth reports the state by itself"},
		"replicas":   {homes: "Service Step", write: "count: %s"},

		"InlineDefinition.spec": {write: "write its fields in template itself"},
		"selector":              {write: "leave it out: a Service names its definition"},
		"annotations":           {homes: "Service Job Cron TaskDefinition Cluster", write: "labels: %s"},
		"namespace":             {homes: "Service Job Cron", write: "cluster: %s"},
		"nodeselector":          {homes: "Placement", write: "constraints: %s", value: constraintsOf},
		"nodename":              {homes: "Placement", write: "constraints: [{attribute: node.name, value: %s}]"},
		"priorityclassname":     {homes: "Service Job", write: "priority: NUMBER"},
		"minreadyseconds":       {homes: "TaskDefinition", write: "min_healthy_time: %s", value: seconds},
		"revisionhistorylimit":  {write: "leave it out: Berth keeps the newest 10 unused versions"},
		"maxunavailable":        {homes: "Update", write: "min_healthy: %s", value: minHealthy},
		"rollingupdate":         {homes: "Service", write: "update: %s", value: rollingUpdate},
		"updatestrategy":        {homes: "Service", write: "update: %s", value: rollingUpdate},
		"Service.strategy":      {homes: "Service", write: "update: %s", value: rollingUpdate, strict: true},
		"minreplicas":           {homes: "Scaling", write: "min: %s"},
		"maxreplicas":           {homes: "Scaling", write: "max: %s"},

		"topologyspreadconstraints": {homes: "Placement", write: "spread: [{attribute: label.KEY}]"},
		"progressdeadlineseconds":   {homes: "Update", write: "progress_deadline: %s", value: seconds},
	}
}

// kubernetesPodFields are fields of pods and containers of Kubernetes.
func kubernetesPodFields() map[string]foreignField {
	const checks = "checks: [%s]"
	return map[string]foreignField{
		"restartpolicy":      {homes: "TaskDefinition", write: "restart: {mode: %s}", value: restartMode},
		"initcontainers":     {write: "write them first in containers, each with init: true"},
		"hostnetwork":        {homes: "TaskDefinition", write: "network: %s", value: hostNetwork},
		"serviceaccountname": {write: "leave it out: a task has no account; give it a token as a secret"},
		"imagepullsecrets":   {homes: "Container", write: "pull_secret: %s", value: firstName},
		"imagepullpolicy":    {homes: "Container", write: "pull: %s", value: pullPolicy},
		"workingdir":         {homes: "Container", write: "dir: %s"},
		"envfrom":            {homes: "Container", write: "env: {NAME: VALUE}"},
		"volumemounts":       {homes: "Container", write: "mounts: %s", value: mountsOf},
		"mountpath":          {homes: "Mount", write: "path: %s"},
		"Mount.name":         {homes: "Mount", write: "volume: %s"},
		"subpath":            {write: "leave it out: a mount shows a whole volume"},
		"hostpath":           {homes: "Volume", write: "host: %s", value: hostPath},
		"emptydir":           {write: "leave it out: the name makes the volume; for memory write tmpfs in a container"},
		"configmap":          {homes: "Container", write: "files: [{path: PATH, content: TEXT}]"},

		"persistentvolumeclaim": {write: "leave it out: the name makes the volume on the node"},
		"Volume.secret":         {homes: "Container", write: "secrets: [{secret: %s, file: PATH}]", value: secretName},

		"containerport":          {homes: "Port", write: "port: %s", more: ", or to: in a bridge network"},
		"hostport":               {homes: "Port", write: "port: %s"},
		"targetport":             {homes: "Port", write: "to: %s"},
		"livenessprobe":          {homes: "TaskDefinition", write: checks, value: probe(cluster.MeaningLiveness)},
		"readinessprobe":         {homes: "TaskDefinition", write: checks, value: probe(cluster.MeaningReadiness)},
		"startupprobe":           {homes: "TaskDefinition", write: checks, value: probe(cluster.MeaningStartup)},
		"periodseconds":          {homes: "Check", write: "interval: %s", value: seconds},
		"timeoutseconds":         {homes: "Check", write: "timeout: %s", value: seconds},
		"initialdelayseconds":    {homes: "Check", write: "initial_delay: %s", value: seconds},
		"failurethreshold":       {homes: "Check", write: "fail_after: %s"},
		"requests":               {homes: "Resources", write: "%s", value: resourcesOf("cpu")},
		"limits":                 {homes: "Resources", write: "%s", value: resourcesOf("cpu_limit")},
		"securitycontext":        {homes: "Container", write: "%s", value: securityOf},
		"runasuser":              {homes: "Container", write: "user: %s", value: quotedText},
		"readonlyrootfilesystem": {homes: "Container", write: "read_only_root: %s"},
		"lifecycle":              {homes: "TaskDefinition", write: "shutdown_delay: DURATION, the wait before TERM"},

		"terminationgraceperiodseconds": {homes: "TaskDefinition", write: "grace: %s", value: seconds},
	}
}

// kubernetesJobFields are fields of jobs and cron jobs of Kubernetes.
func kubernetesJobFields() map[string]foreignField {
	return map[string]foreignField{
		"backofflimit":            {homes: "Step", write: "retries: %s"},
		"completions":             {homes: "Step", write: "count: %s"},
		"Job.parallelism":         {homes: "Step", write: "parallelism: %s"},
		"CronJob.parallelism":     {homes: "Step", write: "parallelism: %s"},
		"activedeadlineseconds":   {homes: "Step", write: "time_limit: %s", value: seconds},
		"ttlsecondsafterfinished": {homes: "Job", write: "keep: %s", value: seconds},
		"Cron.schedule":           {homes: "Cron", write: "schedules: [%s]", value: quotedText},
		"timezone":                {homes: "Cron", write: "zone: %s"},
		"concurrencypolicy":       {homes: "Cron", write: "concurrency: %s", value: lower},
		"startingdeadlineseconds": {homes: "Cron", write: "within: %s", value: seconds},
		"jobtemplate":             {homes: "Cron", write: "job: {steps: […]}"},

		"successfuljobshistorylimit": {homes: "Cron", write: "keep_succeeded: %s"},
		"failedjobshistorylimit":     {homes: "Cron", write: "keep_failed: %s"},
	}
}

// composeFields are fields of services of Docker Compose.
func composeFields() map[string]foreignField {
	return map[string]foreignField{
		"environment": {homes: "Container", write: "env: %s", value: envOf},
		"envfile":     {homes: "Container", write: "env: {NAME: VALUE}"},
		"entrypoint":  {homes: "Container", write: "command: %s", value: commandWords},
		"dependson": {
			homes: "Container", write: "services: %s", value: servicesOf,
			more: "; for a container of the same task write after: [NAME]",
		},
		"healthcheck":        {homes: "TaskDefinition", write: "checks: [%s]", value: healthcheck},
		"deploy":             {homes: "Service", write: "%s", value: deployOf},
		"Container.restart":  {homes: "TaskDefinition", write: "restart: {mode: %s}", value: restartMode, strict: true},
		"containername":      {homes: "Container", write: "name: %s"},
		"hostname":           {homes: "Container", write: "name: %s"},
		"Container.volumes":  {homes: "Container", write: "mounts: %s", value: composeMounts, strict: true},
		"Container.ports":    {homes: "TaskDefinition", write: "ports: %s", value: composePorts, strict: true},
		"networkmode":        {homes: "TaskDefinition", write: "network: %s"},
		"networks":           {write: "leave it out: write network: host, bridge or none in the TaskDefinition"},
		"links":              {write: "leave it out: services find each other by name (docs/guide/networks.md)"},
		"expose":             {write: "leave it out: ports of the TaskDefinition are open to other tasks"},
		"capadd":             {homes: "Container", write: "capabilities: %s"},
		"capdrop":            {write: "leave it out: all capabilities but those of capabilities are dropped"},
		"privileged":         {write: "leave it out: write capabilities, and devices in resources"},
		"memlimit":           {homes: "Resources", write: "memory: %s", value: composeSize},
		"memreservation":     {homes: "Resources", write: "memory: %s", value: composeSize},
		"cpus":               {homes: "Resources", write: "cpu: %s", value: text},
		"pidslimit":          {homes: "Resources", write: "pids: %s"},
		"ulimits":            {homes: "Resources", write: "open_files: N for nofile; Berth sets no others"},
		"gpus":               {homes: "Resources", write: "devices: [{type: gpu, count: %s}]", value: number},
		"Container.readonly": {homes: "Container", write: "read_only_root: %s"},
		"stopgraceperiod":    {homes: "TaskDefinition", write: "grace: %s"},
		"stopsignal":         {write: "leave it out: a container gets TERM, and KILL after grace"},
		"build":              {homes: "Container", write: "image: NAME:TAG of an image that is built elsewhere"},
		"logging":            {write: "leave it out: `berth logs` reads the output"},
		"pullpolicy":         {homes: "Container", write: "pull: %s", value: pullPolicy},

		"TaskDefinition.image": {homes: "TaskDefinition", write: "containers: [{name: main, image: %s}]"},
	}
}

// nomadFields are fields of jobs of Nomad.
func nomadFields() map[string]foreignField {
	const parts = "write a TaskDefinition with containers, and a Service or a Job that names it"
	return map[string]foreignField{
		"group":          {write: parts},
		"taskgroups":     {write: parts},
		"task":           {write: parts},
		"tasks":          {write: parts},
		"driver":         {write: "leave it out: containers with an image run in containerd, others as processes"},
		"config":         {write: "write image, command and args in the container"},
		"datacenters":    {write: "leave it out: write pool or constraints in placement to choose nodes"},
		"region":         {write: "leave it out: write pool or constraints in placement to choose nodes"},
		"killtimeout":    {homes: "TaskDefinition", write: "grace: %s"},
		"killsignal":     {write: "leave it out: a container gets TERM, and KILL after grace"},
		"constraint":     {homes: "Placement", write: "constraints: [%s]", value: constraintOf},
		"meta":           {homes: "Service Job Cron TaskDefinition Cluster", write: "labels: %s"},
		"periodic":       {homes: "Cron", write: "schedules: [%s]", value: periodic},
		"Cron.cron":      {homes: "Cron", write: "schedules: [%s]", value: quotedText},
		"crons":          {homes: "Cron", write: "schedules: %s", value: listOf},
		"maxparallel":    {homes: "Update", write: "parallelism: %s"},
		"autorevert":     {homes: "Update", write: "auto_rollback: %s"},
		"canary":         {homes: "Update", write: "canaries: %s"},
		"ephemeraldisk":  {homes: "TaskDefinition", write: "disk: %s", value: diskOf},
		"Port.static":    {homes: "Port", write: "port: %s"},
		"Service.type":   {homes: "Service", write: "mode: %s", value: serviceMode, strict: true},
		"Restart.policy": {homes: "Restart", write: "mode: %s", value: restartMode},

		"Restart.attempts":    {homes: "Restart", write: "limit: %s"},
		"Restart.interval":    {homes: "Restart", write: "window: %s"},
		"Reschedule.attempts": {homes: "Reschedule", write: "limit: %s"},
		"Reschedule.interval": {homes: "Reschedule", write: "window: %s"},
		"prohibitoverlap":     {homes: "Cron", write: "concurrency: %s", value: overlap},
	}
}

// slurmFields are options of sbatch.
func slurmFields() map[string]foreignField {
	return map[string]foreignField{
		"jobname": {homes: "Job", write: "name: %s"},
		"ntasks":  {homes: "Step", write: "count: %s"},
		"array": {
			homes: "Step", write: "%s", value: arrayFields, more: ", where BERTH_INDEX counts from 0",
		},
		"time":        {homes: "Step", write: "time_limit: %s", value: slurmTime},
		"mem":         {homes: "Resources", write: "memory: %s", value: megabytes},
		"mempercpu":   {homes: "Resources", write: "memory: %s", value: megabytes},
		"cpuspertask": {homes: "Resources", write: "cpu: %s"},
		"partition":   {homes: "Placement", write: "pool: %s"},
		"gres":        {homes: "Resources", write: "devices: [{type: gpu, count: %s}]", value: number},
		"gpuspertask": {homes: "Resources", write: "devices: [{type: gpu, count: %s}]", value: number},
		"nodelist":    {homes: "Placement", write: "constraints: [{attribute: node.name, value: %s}]"},
		"gpus":        {homes: "Resources", write: "devices: [{type: gpu, count: %s}]", value: number},
		"gpuspernode": {homes: "Resources", write: "devices: [{type: gpu, count: %s}]", value: number},
		"priority":    {homes: "Job", write: "priority: NUMBER", more: ", from 1 to 1000"},
		"chdir":       {homes: "Container", write: "dir: %s"},
		"export":      {homes: "Container", write: "env: {NAME: VALUE}"},
		"reservation": {homes: "Placement", write: "reservation: %s"},
		"exclude":     {homes: "Placement", write: "constraints: [{attribute: node.name, op: \"!=\", value: %s}]"},
		"exclusive":   {write: "reserve a node (berth reservation create), or request all of its CPUs"},
		"requeue":     {homes: "Step", write: "retries: 1"},
		"output":      {write: "leave it out: `berth logs` reads the output"},
		"error":       {write: "leave it out: `berth logs` reads the output"},
		"dependency":  {homes: "Step", write: "needs: [STEP]"},
		"account":     {homes: "Job", write: "cluster: %s"},
		"nodes":       {write: "leave it out: Berth chooses the nodes for the tasks of a step"},
	}
}

// metadataOf converts the metadata of an object of Kubernetes.
func metadataOf(n *node) string {
	var all []string
	for _, f := range n.fields {
		switch f.key {
		case "name", "labels":
			all = append(all, f.key+": "+flow(f.value))
		case "namespace":
			all = append(all, "cluster: "+flow(f.value))
		}
	}
	return strings.Join(all, ", ")
}

// minHealthy converts the share of tasks that may be unavailable to the share that must be healthy.
func minHealthy(n *node) string {
	percent, ok := strings.CutSuffix(text(n), "%")
	share, err := strconv.ParseUint(percent, 10, 7)
	switch {
	case text(n) == "0":
		return "100%"
	case !ok || err != nil || share > 100:
		return ""
	}
	return strconv.FormatUint(100-share, 10) + "%"
}

// rollingUpdate converts the strategy of a Deployment.
func rollingUpdate(n *node) string {
	if inner := get(n, "rollingUpdate"); inner != nil {
		n = inner
	}
	var parts []string
	if s := text(get(n, "maxSurge")); s != "" {
		parts = append(parts, "max_surge: "+s)
	}
	if unavailable := get(n, "maxUnavailable"); unavailable != nil {
		if s := minHealthy(unavailable); s != "" {
			parts = append(parts, "min_healthy: "+s)
		}
	}
	if text(get(n, "type")) == "Recreate" {
		parts = append(parts, "order: stop-first")
	}
	if len(parts) == 0 {
		return ""
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func hostNetwork(n *node) string {
	if n.shape == shapeBool && n.text == "false" {
		return string(cluster.NetworkBridge)
	}
	return string(cluster.NetworkHost)
}

// firstName converts a list of objects with names to the name of the first.
func firstName(n *node) string {
	for _, item := range n.items {
		if s := text(get(item, "name")); s != "" {
			return quoted(s)
		}
	}
	return ""
}

func hostPath(n *node) string {
	if path := text(get(n, "path")); path != "" {
		return quoted(path)
	}
	return scalarOf(n)
}

// scalarOf writes a scalar.
func scalarOf(n *node) string {
	if s := text(n); s != "" {
		return quoted(s)
	}
	return ""
}

func secretName(n *node) string {
	if name := text(get(n, "secretName")); name != "" {
		return quoted(name)
	}
	return "NAME"
}

// securityOf converts a security context.
func securityOf(n *node) string {
	var parts []string
	if user := text(get(n, "runAsUser")); user != "" {
		if group := text(get(n, "runAsGroup")); group != "" {
			user += ":" + group
		}
		parts = append(parts, "user: "+strconv.Quote(user))
	}
	if s := text(get(n, "readOnlyRootFilesystem")); s != "" {
		parts = append(parts, "read_only_root: "+s)
	}
	if added := get(n, "capabilities", "add"); added != nil {
		parts = append(parts, "capabilities: "+flow(added))
	}
	if len(parts) == 0 {
		return "user, read_only_root and capabilities"
	}
	return strings.Join(parts, ", ")
}

// servicesOf converts the services that a service of Compose depends on.
func servicesOf(n *node) string {
	names := texts(n)
	for _, f := range n.fields {
		names = append(names, f.key)
	}
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = "{service: " + quoted(name) + "}"
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// deployOf converts the deployment of a service of Compose.
func deployOf(n *node) string {
	if s := text(get(n, "replicas")); s != "" {
		return "count: " + s
	}
	return "count, update and placement"
}

// number returns the last number of a text, such as 2 of "gpu:a100:2".
func number(n *node) string {
	s := text(n)
	s = s[strings.LastIndexByte(s, ':')+1:]
	if _, err := strconv.ParseUint(s, 10, 16); err != nil {
		return "1"
	}
	return s
}

// constraintOf converts a constraint of Nomad.
func constraintOf(n *node) string {
	attribute := text(get(n, "attribute"))
	attribute = strings.TrimSuffix(strings.TrimPrefix(attribute, "${"), "}")
	if key, ok := strings.CutPrefix(attribute, "meta."); ok {
		attribute = "label." + key
	}
	switch attribute {
	case "":
		return "{attribute: label.KEY, value: VALUE}"
	case "attr.cpu.arch":
		attribute = "node.arch"
	case "attr.kernel.name":
		attribute = "node.os"
	case "node.unique.name":
		attribute = "node.name"
	}
	value := text(get(n, "value"))
	if value == "" {
		value = "VALUE"
	}
	return "{attribute: " + quoted(attribute) + ", value: " + quoted(value) + "}"
}

// periodic converts the schedule of a periodic job of Nomad.
func periodic(n *node) string {
	all := append(texts(get(n, "cron")), texts(get(n, "crons"))...)
	for i, s := range all {
		all[i] = strconv.Quote(s)
	}
	return strings.Join(all, ", ")
}

func diskOf(n *node) string {
	if size := get(n, "size"); size != nil {
		return megabytes(size)
	}
	return megabytes(n)
}

// serviceMode converts the type of a job of Nomad.
func serviceMode(n *node) string {
	if text(n) == "system" {
		return string(cluster.ModeDaemon)
	}
	return ""
}

func overlap(n *node) string {
	if text(n) == "false" {
		return string(cluster.CronAllow)
	}
	return string(cluster.CronForbid)
}

// arrayFields converts an array such as "0-9", "1-16%4", "0-99:10" or "1,3,5-7" to the fields of a step.
func arrayFields(n *node) string {
	indexes, limit, limited := strings.Cut(text(n), "%")
	count := 0
	for part := range strings.SplitSeq(indexes, ",") {
		tasks := rangeCount(part)
		if tasks == 0 {
			return "count: …"
		}
		count += tasks
	}
	fields := "count: " + strconv.Itoa(count)
	if _, err := strconv.ParseUint(limit, 10, 16); limited && err == nil {
		fields += " and parallelism: " + limit
	}
	return fields
}

// rangeCount returns how many indexes a part of an array has: "7", "0-9" or "0-99:10". For any other text it is 0.
func rangeCount(part string) int {
	bounds, by, hasStep := strings.Cut(part, ":")
	low, high, isRange := strings.Cut(bounds, "-")
	if !isRange {
		high = low
	}
	if !hasStep {
		by = "1"
	}
	first, err := strconv.ParseUint(low, 10, 31)
	last, err2 := strconv.ParseUint(high, 10, 31)
	step, err3 := strconv.ParseUint(by, 10, 31)
	if err != nil || err2 != nil || err3 != nil || step == 0 || last < first {
		return 0
	}
	return int((last-first)/step) + 1
}

// durationHint returns the duration that a person meant who wrote a number without a unit, or a time of Slurm with
// hours, minutes and seconds. For any other text it is "".
func durationHint(n *node) string {
	if s := text(n); strings.Trim(s, "0123456789") == "" && s != "" {
		return s + "s for seconds, or " + s + "m for minutes"
	} else if strings.Contains(s, ":") || strings.Contains(s, "-") {
		return slurmTime(n)
	}
	return ""
}

// slurmTime converts a time of Slurm: minutes, "HH:MM:SS" or "D-HH:MM:SS".
func slurmTime(n *node) string {
	days, rest, hasDays := strings.Cut(text(n), "-")
	if !hasDays {
		days, rest = "0", text(n)
	}
	parts := strings.Split(rest, ":")
	var values [3]int64 // hours, minutes, seconds
	at := 3 - len(parts)
	if len(parts) == 1 {
		at = 1 // minutes
	}
	if len(parts) == 2 && !hasDays {
		at = 1 // minutes and seconds
	}
	if hasDays {
		at = 0 // hours come first
	}
	for i, part := range parts {
		v, err := strconv.ParseInt(part, 10, 32)
		if err != nil || at+i > 2 || at < 0 {
			return ""
		}
		values[at+i] = v
	}
	d, err := strconv.ParseInt(days, 10, 16)
	if err != nil {
		return ""
	}
	return seconds(&node{shape: shapeInt, text: strconv.FormatInt(d*86400+values[0]*3600+values[1]*60+values[2], 10)})
}
