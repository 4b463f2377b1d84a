package manifest

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// flow writes a value as YAML on one line, for a message.
func flow(n *node) string {
	switch n.shape {
	case shapeNull:
		return "null"
	case shapeText:
		return quoted(n.text)
	case shapeList:
		items := make([]string, 0, len(n.items))
		for i, item := range n.items {
			if i == maxFlow {
				items = append(items, "…")
				break
			}
			items = append(items, flow(item))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case shapeObject:
		entries := make([]string, 0, len(n.fields))
		for i, f := range n.fields {
			if i == maxFlow {
				entries = append(entries, "…")
				break
			}
			entries = append(entries, quoted(f.key)+": "+flow(f.value))
		}
		return "{" + strings.Join(entries, ", ") + "}"
	case shapeBroken:
		return "…"
	}
	return clip(n.text)
}

// maxFlow is the number of entries of a list or object that a message shows.
const maxFlow = 8

// plainText matches text that YAML reads as text without quotes, quantities among it.
var plainText = regexp.MustCompile(`^[0-9]+(%|ms|[smh]|[KMGT]i?B?)$|` +
	`^-{0,2}[A-Za-z_/][A-Za-z0-9_./@+=-]*(:[A-Za-z0-9_./@+=-]+)*$`)

// quoted writes text as YAML, with quotes where they are necessary.
func quoted(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		return strconv.Quote(s)
	}
	if s = clip(s); plainText.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}

// flowList writes the texts as a list.
func flowList(items []string) string {
	all := make([]string, len(items))
	for i, item := range items {
		all[i] = quoted(item)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// get returns the value of a path of keys in an object, or nil.
func get(n *node, keys ...string) *node {
	for _, key := range keys {
		f := n.field(key)
		if f == nil {
			return nil
		}
		n = f.value
	}
	return n
}

// text returns a scalar as it was written, "" for any other value.
func text(n *node) string {
	if n == nil || n.shape == shapeObject || n.shape == shapeList || n.shape == shapeNull || n.shape == shapeBroken {
		return ""
	}
	return n.text
}

// texts returns the scalars of a list, or a single scalar.
func texts(n *node) (all []string) {
	if n == nil {
		return nil
	}
	for _, item := range n.items {
		if s := text(item); s != "" {
			all = append(all, s)
		}
	}
	if s := text(n); s != "" {
		all = append(all, s)
	}
	return all
}

func lower(n *node) string { return strings.ToLower(text(n)) }

func quotedText(n *node) string {
	if s := text(n); s != "" {
		return strconv.Quote(s)
	}
	return ""
}

func listOf(n *node) string {
	if all := texts(n); len(all) > 0 {
		return flowList(all)
	}
	return ""
}

// seconds converts a number of seconds to a duration.
func seconds(n *node) string {
	s, err := strconv.ParseInt(text(n), 10, 32)
	if err != nil {
		return ""
	}
	return (cluster.Duration(s) * cluster.Duration(time.Second)).String()
}

// commandWords converts a command as text to words: a shell runs it.
func commandWords(n *node) string {
	if n.shape == shapeText {
		return "[sh, -c, " + strconv.Quote(clip(n.text)) + "]"
	}
	return listOf(n)
}

// envOf converts a list of variables, "NAME=value" or {name, value}, to an object.
func envOf(n *node) string {
	if n.shape == shapeObject {
		entries := make([]string, 0, len(n.fields))
		for _, f := range n.fields {
			entries = append(entries, quoted(f.key)+": "+envValue(text(f.value)))
		}
		return "{" + strings.Join(entries, ", ") + "}"
	}
	var entries []string
	for i, item := range n.items {
		name, value, ok := strings.Cut(text(item), "=")
		if item.shape == shapeObject {
			name, value = text(get(item, "name")), text(get(item, "value"))
			ok = name != ""
		}
		if !ok {
			return ""
		}
		if i == maxFlow {
			entries = append(entries, "…")
			break
		}
		entries = append(entries, quoted(name)+": "+envValue(value))
	}
	if len(entries) == 0 {
		return ""
	}
	return "{" + strings.Join(entries, ", ") + "}"
}

func envValue(s string) string {
	if s == "" {
		return `""`
	}
	return quoted(s)
}

// restartMode converts the restart policy of Kubernetes or Compose.
func restartMode(n *node) string {
	policy, _, _ := strings.Cut(lower(n), ":")
	switch strings.ReplaceAll(policy, "-", "") {
	case "always", "unlessstopped", "any":
		return string(cluster.RestartAlways)
	case "onfailure":
		return string(cluster.RestartOnFailure)
	case "never", "no", "none", "false":
		return string(cluster.RestartNever)
	}
	return ""
}

func pullPolicy(n *node) string {
	switch lower(n) {
	case "always":
		return string(cluster.PullAlways)
	case "ifnotpresent", "missing", "if_not_present":
		return string(cluster.PullMissing)
	case "never":
		return string(cluster.PullNever)
	}
	return ""
}

// binarySize converts a size of Compose, in which "64m" is 64 MiB. A number without a unit counts the base.
func binarySize(n *node, base string) string {
	s := strings.TrimSuffix(strings.TrimSuffix(lower(n), "b"), "i")
	if s == "" {
		return ""
	}
	number, unit := s[:len(s)-1], s[len(s)-1:]
	if strings.ContainsAny(unit, "0123456789") {
		number, unit = s, base
	}
	if strings.Trim(number, "0123456789.") != "" || !strings.Contains("kmgt", unit) || number == "" {
		return ""
	}
	return number + strings.ToUpper(unit) + "iB"
}

func composeSize(n *node) string {
	if n.shape == shapeInt {
		return n.text
	}
	return binarySize(n, "")
}

func megabytes(n *node) string { return binarySize(n, "m") }

// constraintsOf converts labels that a node must have.
func constraintsOf(n *node) string {
	var all []string
	for _, f := range n.fields {
		if s := text(f.value); s != "" {
			all = append(all, "{attribute: "+quoted("label."+f.key)+", value: "+quoted(s)+"}")
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// probe converts a probe of Kubernetes to a check with that meaning.
func probe(meaning cluster.CheckMeaning) func(*node) string {
	return func(n *node) string {
		parts := []string{"type: TYPE"}
		if of := func(keys ...string) *node { return get(n, keys...) }; n.shape == shapeObject {
			switch {
			case of("httpGet") != nil:
				parts = []string{"type: http", "port: " + portName(of("httpGet", "port"))}
				if path := text(of("httpGet", "path")); path != "" {
					parts = append(parts, "path: "+quoted(path))
				}
			case of("tcpSocket") != nil:
				parts = []string{"type: tcp", "port: " + portName(of("tcpSocket", "port"))}
			case of("grpc") != nil:
				parts = []string{"type: grpc", "port: " + portName(of("grpc", "port"))}
			case of("exec", "command") != nil:
				parts = []string{"type: exec", "command: " + listOf(of("exec", "command"))}
			}
			for _, field := range [][2]string{
				{"periodSeconds", "interval"}, {"timeoutSeconds", "timeout"}, {"initialDelaySeconds", "initial_delay"},
			} {
				if s := of(field[0]); s != nil {
					parts = append(parts, field[1]+": "+seconds(s))
				}
			}
			if s := text(of("failureThreshold")); s != "" {
				parts = append(parts, "fail_after: "+s)
			}
		}
		if meaning != cluster.MeaningReadiness {
			parts = append(parts, "meaning: "+string(meaning))
		}
		return "{name: " + string(meaning) + ", " + strings.Join(parts, ", ") + "}"
	}
}

// portName is the name of a port that another system names or numbers.
func portName(n *node) string {
	s := text(n)
	if s == "" || strings.Trim(s, "0123456789") == "" {
		return "NAME"
	}
	return quoted(s)
}

// healthcheck converts a health check of Compose to a check.
func healthcheck(n *node) string {
	if n.shape != shapeObject {
		return ""
	}
	command := "[…]"
	if test := get(n, "test"); test != nil {
		words := texts(test)
		switch {
		case test.shape == shapeText:
			command = commandWords(test)
		case len(words) > 1 && words[0] == "CMD":
			command = flowList(words[1:])
		case len(words) > 1 && words[0] == "CMD-SHELL":
			command = "[sh, -c, " + strconv.Quote(clip(words[1])) + "]"
		}
	}
	parts := []string{"name: up", "type: exec", "command: " + command}
	for _, field := range [][2]string{{"interval", "interval"}, {"timeout", "timeout"}, {"retries", "fail_after"}} {
		if s := text(get(n, field[0])); s != "" {
			parts = append(parts, field[1]+": "+s)
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// mountsOf converts mounts of Kubernetes.
func mountsOf(n *node) string {
	var all []string
	for _, item := range n.items {
		volume, path := text(get(item, "name")), text(get(item, "mountPath"))
		if volume == "" || path == "" {
			return ""
		}
		all = append(all, "{volume: "+quoted(volume)+", path: "+quoted(path)+"}")
	}
	if len(all) == 0 {
		return ""
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// composeMounts converts volumes of a service of Compose, such as "data:/data:ro".
func composeMounts(n *node) string {
	var all []string
	for _, item := range n.items {
		mount := composeMount(text(item))
		if mount == "" {
			return ""
		}
		all = append(all, mount)
	}
	if len(all) == 0 {
		return ""
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func composeMount(s string) string {
	parts := strings.Split(s, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || parts[1] == "" {
		return ""
	}
	volume := quoted(parts[0])
	if strings.ContainsAny(parts[0], "/.~") {
		volume = "NAME" // of a volume with the host path
	}
	mount := "{volume: " + volume + ", path: " + quoted(parts[1])
	if len(parts) == 3 && strings.Contains(parts[2], "ro") {
		mount += ", read_only: true"
	}
	return mount + "}"
}

// composePorts converts ports of Compose, such as "8080:80".
func composePorts(n *node) string {
	var all []string
	for _, item := range n.items {
		port := composePort(item)
		if port == "" {
			return ""
		}
		all = append(all, port)
	}
	if len(all) == 0 {
		return ""
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func composePort(n *node) string {
	s, _, _ := strings.Cut(text(n), "/")
	parts := strings.Split(s, ":")
	for _, part := range parts {
		if _, err := strconv.ParseUint(part, 10, 16); err != nil {
			return ""
		}
	}
	switch len(parts) {
	case 1:
		return "{name: http, port: " + parts[0] + "}"
	case 2:
		return "{name: http, port: " + parts[0] + ", to: " + parts[1] + "}"
	}
	return ""
}

// resourcesOf converts requests, or limits, of Kubernetes and Compose; cpu is Berth's field for the CPU.
func resourcesOf(cpu string) func(*node) string {
	return func(n *node) string {
		var all []string
		for _, f := range n.fields {
			value := flow(f.value)
			switch f.key {
			case "cpu", "cpus":
				all = append(all, cpu+": "+strings.Trim(value, `"`))
			case "memory":
				all = append(all, "memory: "+strings.Trim(value, `"`))
			case "ephemeral-storage":
				continue
			default:
				if strings.HasSuffix(f.key, "/gpu") {
					all = append(all, "devices: [{type: gpu, count: "+strings.Trim(value, `"`)+"}]")
				}
			}
		}
		return strings.Join(all, ", ")
	}
}

// formHint says how a value of the wrong form is written in a field of a type. It returns "" where nothing is known.
func formHint(path string, n *node, t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[[]string]() && text(n) != "":
		if path == "command" || strings.HasSuffix(path, ".command") {
			return commandWords(n)
		}
		return flowList([]string{text(n)})
	case t.Kind() == reflect.Map && n.shape == shapeList:
		return envOf(n)
	case t == reflect.TypeFor[cluster.Port]() && text(n) != "":
		return composePort(n)
	case t == reflect.TypeFor[[]cluster.Port]() && text(n) != "":
		if port := composePort(n); port != "" {
			return "[" + port + "]"
		}
	case t == reflect.TypeFor[cluster.Mount]() && text(n) != "":
		return composeMount(text(n))
	case t == reflect.TypeFor[cluster.Volume]() && text(n) != "":
		return "{name: " + quoted(text(n)) + "}"
	case t == reflect.TypeFor[cluster.Tmpfs]() && text(n) != "":
		return "{path: " + quoted(text(n)) + "}"
	case t == reflect.TypeFor[[]cluster.Tmpfs]() && text(n) != "":
		return "[{path: " + quoted(text(n)) + "}]"
	case t == reflect.TypeFor[cluster.Restart]() && restartMode(n) != "":
		return "{mode: " + restartMode(n) + "}"
	case t == reflect.TypeFor[cluster.ServiceUse]() && text(n) != "":
		return "{service: " + quoted(text(n)) + "}"
	case t == reflect.TypeFor[cluster.SecretUse]() && text(n) != "":
		return fmt.Sprintf("{secret: %s, file: /run/secrets/%s}", quoted(text(n)), clip(text(n)))
	case t == reflect.TypeFor[cluster.Distinct]() && text(n) != "":
		return "{attribute: " + quoted(text(n)) + "}"
	case t.Kind() == reflect.Slice && n.shape == shapeObject && t.Elem().Kind() == reflect.Struct:
		return namedList(n, t.Elem())
	}
	return ""
}

// namedList says how the entries of an object are written as a list of objects with names.
func namedList(n *node, element reflect.Type) string {
	if _, named := element.FieldByName("Name"); !named || len(n.fields) == 0 {
		return ""
	}
	for _, sf := range fieldsOf(element) {
		if n.field(sf.name) != nil { // one element without the "- " of a list
			return `"- " before ` + n.fields[0].key
		}
	}
	return "[{name: " + quoted(n.fields[0].key) + ", …}]"
}
