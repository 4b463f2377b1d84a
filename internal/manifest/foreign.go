package manifest

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// Words of other systems are recognized, to name their counterparts in Berth.

// Each of these pages compares the manifests of another system with those of Berth.
const (
	kubernetesPage = "docs/guide/from-kubernetes.md"
	composePage    = "docs/guide/from-compose.md"
	nomadPage      = "docs/guide/from-nomad.md"
	slurmPage      = "docs/guide/from-slurm.md"
)

// foreignKinds maps kinds of Kubernetes manifests to their counterparts in Berth.
func foreignKinds() map[string]string {
	return map[string]string{
		"ConfigMap":               "files of a container",
		"CronJob":                 "a Cron with a template in its step",
		"DaemonSet":               "a Service with a template and mode: daemon",
		"Deployment":              "a Service with a template",
		"HorizontalPodAutoscaler": "scaling in a Service",
		"Ingress":                 "a program of your own that follows services (docs/guide/following.md)",
		"Namespace":               "a Cluster",
		"PersistentVolumeClaim":   "volumes in the template",
		"Pod":                     "a Service or a Job with a template",
		"PodDisruptionBudget":     "min_healthy in update of the Service",
		"ReplicaSet":              "a Service with a template",
		"ResourceQuota":           "quota of the Cluster",
		"Secret":                  "no manifest, but run `berth secret set`",
		"StatefulSet":             "a Service with a template that has sticky volumes",
	}
}

// refuseForeignDocument adds the fault of a document that is written for another system, and reports whether it is.
func (r *reader) refuseForeignDocument(root *node) bool {
	kind, metadata, spec := root.field("kind"), root.field("metadata"), root.field("spec")
	berths := kind != nil && slices.Contains(Kinds(), cluster.Kind(kind.value.text))
	switch {
	case root.field("apiVersion") != nil && (!berths || metadata != nil || spec != nil),
		isObject(metadata) && isObject(spec):
		r.fault(root.at, "", "%s", kubernetesAdvice(root))
	case kind != nil:
		return false
	case isObject(root.field("services")):
		var names []string
		for _, f := range root.field("services").value.fields {
			names = append(names, clip(f.key))
		}
		r.fault(root.at, "",
			"this is a file of Docker Compose: write a Service with a template for each of its services: %s (%s)",
			strings.Join(names, ", "), composePage)
	case isObject(root.field("Job")), isObject(root.field("job")) && root.field("job").value.field("steps") == nil:
		r.fault(root.at, "", "%s", nomadAdvice)
	default:
		return false
	}
	return true
}

const nomadAdvice = "this is a job of Nomad: write a Service, Job or Cron whose template has its tasks as " +
	"containers (" + nomadPage + ")"

func isObject(f *field) bool { return f != nil && f.value.shape == shapeObject }

// kubernetesAdvice says what a document of Kubernetes is in Berth, with its name and count.
func kubernetesAdvice(root *node) string {
	kind, here := "manifest", ""
	if f := root.field("kind"); f != nil && f.value.shape == shapeText {
		kind, here = clip(f.value.text), foreignKinds()[f.value.text]
		switch kind {
		case "Service":
			here = "ports in the template of a Service, whose name finds the tasks (docs/guide/networks.md)"
		case "Job":
			here = "a Job with a template in its step"
		}
	}
	if here == "" {
		here = "its content as objects of Berth"
	}
	var values []string
	if metadata := root.field("metadata"); isObject(metadata) {
		if f := metadata.value.field("name"); f != nil {
			values = append(values, "name: "+flow(f.value))
		}
	}
	if spec := root.field("spec"); isObject(spec) {
		if f := spec.value.field("replicas"); f != nil {
			values = append(values, "count: "+flow(f.value))
		}
	}
	with := ""
	if len(values) > 0 {
		with = ", with " + strings.Join(values, " and ")
	}
	return fmt.Sprintf("this is a %s of Kubernetes: write %s%s (%s)", kind, here, with, kubernetesPage)
}

// refuseForeignText adds the faults of a file that is a batch script of Slurm or a job of Nomad in its own language,
// and reports whether it is.
func (r *reader) refuseForeignText(data []byte) bool {
	script, batch := bytes.HasPrefix(data, []byte("#!")), false
	line := 0
	for text := range strings.Lines(string(data)) {
		line++
		text = strings.TrimSpace(text)
		option, isOption := strings.CutPrefix(text, "#SBATCH ")
		switch {
		case script && isOption:
			if !batch {
				batch = true
				r.fault(Position{r.file, 1, 1}, "", "this is a batch script of Slurm: write a Job with a "+
					"template whose command runs the script (%s)", slurmPage)
			}
			r.batchOptions(Position{r.file, line, 1}, option)
		case batch && !strings.HasPrefix(text, "#"):
			r.batchVariables(Position{r.file, line, 1}, text)
		case script, text == "", text[0] == '#', strings.HasPrefix(text, "//"):
		case strings.HasPrefix(text, `job "`):
			r.fault(Position{r.file, line, 1}, "", "%s", nomadAdvice)
			return true
		default:
			return false
		}
	}
	return batch
}

// batchOptions adds the faults of the options of sbatch in a line of a script, such as "--ntasks=4 -c 2".
func (r *reader) batchOptions(at Position, line string) {
	line, _, _ = strings.Cut(line, " #") // a comment
	words := strings.Fields(line)
	for i := 0; i < len(words); i++ {
		word := words[i]
		name, value, found := strings.Cut(word, "=")
		if len(name) > 2 && name[0] == '-' && name[1] != '-' { // "-n4"
			name, value, found = word[:2], word[2:], true
		}
		for !found && i+1 < len(words) && words[i+1][0] != '-' {
			i++
			value += " " + words[i]
		}
		r.batchOption(at, strings.TrimLeft(name, "-"), value)
	}
}

// batchOption adds the fault of an option of sbatch.
func (r *reader) batchOption(at Position, name, value string) {
	if long := batchLetters()[name]; long != "" {
		name = long
	}
	d := decoder{reader: r, kind: cluster.KindJob}
	n := &node{shape: shapeText, at: at, text: strings.Trim(strings.TrimSpace(value), `"`)}
	if n.text != "" && strings.Trim(n.text, "0123456789") == "" {
		n.shape = shapeInt
	}
	advice, _ := d.foreignAdvice(reflect.TypeFor[struct{}](), field{key: name, at: at, value: n})
	if advice == "" {
		advice = "leave it out: Berth has nothing like it, or does it by itself"
	}
	r.fault(at, "", "option --%s of sbatch: %s", clip(name), advice)
}

// batchLetters maps the short options of sbatch to the long ones.
func batchLetters() map[string]string {
	return map[string]string{
		"J": "job-name", "n": "ntasks", "c": "cpus-per-task", "t": "time", "p": "partition", "a": "array",
		"o": "output", "e": "error", "A": "account", "d": "dependency", "w": "nodelist", "N": "nodes", "G": "gpus",
		"D": "chdir", "x": "exclude",
	}
}

// foreignField is a field of another system.
type foreignField struct {
	// homes are the types that have the counterpart; the first that the kind of the document has is named. Without
	// homes, write is the whole advice.
	homes string
	// write is the counterpart, with %s for the value, and more is added at the end of the advice.
	write, more string
	// value converts the value. It returns "" for a value without a counterpart.
	value func(*node) string
	// strict says that the field is one of another system only if its value can be converted.
	strict bool
}

// foreignAdvice says what to write instead of a field of another system, with the user's value where it can be
// converted. It also returns the name of the field that was meant, in the same object or at the top level of the
// document, or "". It returns no advice for any other field.
func (d *decoder) foreignAdvice(here reflect.Type, f field) (advice, meant string) {
	key := strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(f.key))
	for _, name := range []string{here.Name() + "." + key, key} {
		for _, fields := range d.foreignSystems() {
			entry, known := fields[name]
			if !known {
				continue
			}
			if advice, meant := entry.advice(here, d.kind, f.value); advice != "" {
				return advice, meant
			}
		}
	}
	return "", ""
}

// foreignSystems returns the fields of each system, which are made at the first unknown field of a file. A key is a
// name in lower case without "_" and "-", alone or after the type of Berth that is meant with it.
func (r *reader) foreignSystems() []map[string]foreignField {
	if r.systems == nil {
		r.systems = []map[string]foreignField{
			kubernetesFields(), kubernetesPodFields(), kubernetesJobFields(), composeFields(), nomadFields(),
			slurmFields(),
		}
	}
	return r.systems
}

func (e foreignField) advice(here reflect.Type, kind cluster.Kind, n *node) (advice, meant string) {
	text := e.write
	if strings.Contains(text, "%s") {
		value := flow(n)
		if e.value != nil {
			value = e.value(n)
		}
		if value == "" && e.strict {
			return "", ""
		}
		if value == "" {
			value = "…"
		}
		text = strings.ReplaceAll(text, "%s", value)
	}
	homes := strings.Fields(e.homes)
	if len(homes) == 0 {
		return text + e.more, ""
	}
	home := homes[0]
	for _, other := range homes {
		if slices.Contains(kindsWith(other), kind) {
			home = other
			break
		}
	}
	name, _, _ := strings.Cut(text, ":")
	switch of := kindsWith(home); {
	case home == here.Name():
		return "write " + text + e.more, name
	case slices.Contains(of, kind):
		if home != string(kind) {
			name = rootField(home)
		}
		return "write " + text + " " + placeOf(home, kind) + e.more, name
	case home == string(of[0]):
		return "write " + text + " at the top level of a " + home + e.more, ""
	case of[0] == cluster.KindTaskDefinition && kind != cluster.KindCluster && kind != cluster.KindPool &&
		kind != cluster.KindProfile:
		return "write " + text + " " + placeOf(home, kind) + " of the template" + e.more, ""
	default:
		return "write " + text + " " + placeOf(home, kind) + " of a " + string(of[0]) + e.more, ""
	}
}

// kindsWith returns the kinds of objects that have a type of Berth in them, the most usual first.
func kindsWith(holder string) []cluster.Kind {
	switch holder {
	case "Update", "Scaling", "Reschedule":
		return []cluster.Kind{cluster.KindService}
	case "Placement":
		return []cluster.Kind{cluster.KindService, cluster.KindJob, cluster.KindCron}
	case "Step":
		return []cluster.Kind{cluster.KindJob, cluster.KindCron}
	}
	if slices.Contains(Kinds(), cluster.Kind(holder)) {
		return []cluster.Kind{cluster.Kind(holder)}
	}
	return []cluster.Kind{cluster.KindTaskDefinition}
}

// rootField returns the field at the top level of an object that leads to a type.
func rootField(holder string) string {
	switch holder {
	case "Container", "Resources", "Mount":
		return "containers"
	case "Port", "Check", "Volume", "Step":
		return strings.ToLower(holder) + "s"
	}
	return strings.ToLower(holder)
}
