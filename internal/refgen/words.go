package main

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/jsonfields"
)

// wording turns comments of Go code into descriptions for users of manifests: fields have the names that they have in
// YAML, constants have their values, and what only developers need is left out.
type wording struct {
	// fields maps the Go names of fields to their names in YAML.
	fields map[string]string
	values map[string]string
}

// newWording returns the wording for the fields of types.
func newWording(types map[string]reflect.Type) wording {
	w := wording{fields: map[string]string{}, values: map[string]string{
		"DefaultDomain":     cluster.DefaultDomain,
		"DefaultKeepJobs":   "7 days",
		"DefaultPriority":   fmt.Sprint(cluster.DefaultPriority),
		"MaxPriority":       fmt.Sprint(cluster.MaxPriority),
		"MaxDevices":        fmt.Sprint(cluster.MaxDevices),
		"WholeDevice":       fmt.Sprint(cluster.WholeDevice),
		"DefaultDeviceType": cluster.DefaultDeviceType,
		"MaxWeight":         fmt.Sprint(cluster.MaxWeight),
		"DefaultWeight":     fmt.Sprint(cluster.DefaultWeight),
		"MaxRetries":        fmt.Sprint(cluster.MaxRetries),
		"FirstAutoPort":     fmt.Sprint(cluster.FirstAutoPort),
		"LastAutoPort":      fmt.Sprint(cluster.LastAutoPort),
	}}
	for _, typ := range types {
		if typ.Kind() != reflect.Struct || typ.Implements(reflect.TypeFor[encoding.TextMarshaler]()) ||
			typ.Implements(reflect.TypeFor[json.Marshaler]()) {
			continue // a scalar in a manifest
		}
		for f := range jsonfields.Of(typ) {
			w.fields[f.GoName] = f.Name
		}
	}
	const ordinary = "Service Job Cron Cluster Consul Pool Prometheus CPU HTTP URL TLS" // kinds and words of English
	for name := range strings.FieldsSeq(ordinary) {
		delete(w.fields, name)
	}
	return w
}

// descriptions returns the comments of types and fields as descriptions.
func (w wording) descriptions(comments map[string]string) map[string]string {
	out := make(map[string]string, len(comments))
	for name, comment := range comments {
		parts := strings.Split(name, ".")
		out[name] = w.describe(comment, parts[len(parts)-1], len(parts) == 2)
		if isField := len(parts) == 3; isField && out[name] == "" {
			out[name] = usualFields()[cmp.Or(w.fields[parts[2]], strings.ToLower(parts[2]))]
		}
	}
	return out
}

// usualFields describes fields whose comments are left out in the code, because the name says enough there.
func usualFields() map[string]string {
	return map[string]string{
		"name":       `The name: 1 to 63 of a-z, 0-9 and "-", a letter first and no "-" last.`,
		"cluster":    "The cluster (namespace) that the object belongs to, by default that of the command.",
		"labels":     "Attributes of your own, as key: value. Commands select objects by them (-l).",
		"definition": `The task definition that the tasks run, as "name@version".`,
		"version":    "The number of the version, from 1 up.",
		"args":       "Arguments of the program, instead of those of the image.",
		"dir":        "The working folder of the program, by default that of the image.",
		"env":        "Environment variables of the program, by name. $(NAME) in a value is replaced.",
		"mounts":     "The volumes that the container sees, and where.",
		"tmpfs":      "Folders in memory that the container sees, and where.",
		"checks":     "Checks test whether the task is healthy.",
		"restart":    "The policy for a task that ended by itself.",
		"resources":  "What the container reserves, and its limits.",
		"stopped":    "The service keeps its count but runs no task.",
		"placement":  "Where the tasks may and should run.",
		"steps":      "The parts of the job. They run at the same time, unless one `needs` another.",
		"query":      "A query in the language of Prometheus, with one number as the answer.",
	}
}

var (
	// clause matches references to clauses and decisions, and Go names in parentheses.
	clause = regexp.MustCompile(` \((P[0-9]+(\.[0-9]+)?|ADR [0-9]+|[A-Z][a-z]+(\.[A-Z][a-z]+)?)\)`)
	// internalSentence matches sentences for developers.
	internalSentence = regexp.MustCompile(`(Writer: |It has a method |A client's values? )[^.]*(\.|$) ?`)
	word             = regexp.MustCompile(`[A-Za-z][A-Za-z0-9]*`)
)

// describe returns the description of a type or a field of that Go name.
func (w wording) describe(comment, name string, isType bool) string {
	if text := quantities()[name]; isType && text != "" {
		return text
	}
	text := internalSentence.ReplaceAllString(clause.ReplaceAllString(comment, ""), "")
	text = strings.NewReplacer(
		": the record domain/<name>", "", ": the record endpoint/<cluster>/<name>", "",
		": the record profile/<p>/<version>", "", ": the record pool/<p>", "",
		"A pool without a record has no settings; it exists", "A pool exists",
		": see Reservation", "", ". default", ". Default", "unless nil", "unless it is left out",
	).Replace(text)
	if isType {
		text = w.withoutTypeName(text, name)
	}
	text = w.renameFields(strings.TrimSpace(text))
	if text == "" {
		return ""
	}
	if first, size := utf8.DecodeRuneInString(text); unicode.IsLower(first) && !w.beginsWithField(text) {
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// quantities describes types whose comments are about their forms in JSON.
func quantities() map[string]string {
	return map[string]string{
		"Bytes":       `A size: bytes, or a number with KiB, MiB, GiB (binary) or K, M, G (decimal), such as "256MiB".`,
		"Duration":    `A time span such as "500ms", "10s" or "1h30m".`,
		"MilliCPU":    `CPU time: "500m" is half a CPU, and a number such as 0.5 or 2 counts CPUs.`,
		"Portion":     `A number of tasks such as 2, or a share of them such as "25%".`,
		"Priority":    "A priority: a number, or " + cluster.PriorityTable() + ".",
		"StatusRange": `An HTTP status or a range of statuses, such as 401 or "200-299".`,
		"Ref":         `A version of a task definition such as "web@3".`,
	}
}

// withoutTypeName removes the Go name of a type from the beginning of its comment. No manifest has these names, except
// for those of kinds.
func (w wording) withoutTypeName(text, name string) string {
	rest, ok := strings.CutPrefix(text, name+" ")
	if !ok {
		return text
	}
	for _, verb := range []string{"is ", "are "} {
		if noun, ok := strings.CutPrefix(rest, verb); ok {
			return noun
		}
	}
	if subject := typeSubjects()[name]; subject != "" {
		return subject + " " + rest
	}
	return text
}

// typeSubjects are the words for types whose names are no words of English.
func typeSubjects() map[string]string {
	return map[string]string{ //nolint:gosec // names of types, no credentials
		"AntiAffinity": "anti_affinity", "ConstraintOp": "The operator", "CronConcurrency": "concurrency",
		"CronMissed": "missed", "OnDisconnect": "on_disconnect", "OnViolation": "on_violation",
		"PullPolicy": "The policy", "RestartMode": "The mode", "ScalePace": "The pace", "ScaleSchedule": "A schedule",
		"SecretUse": "An entry of secrets", "ServiceMode": "The mode", "ServiceUse": "An entry of services",
		"UpdateOrder": "The order",
	}
}

// renameFields replaces Go names. A name at the beginning of a sentence that is a word of English stays as it is.
func (w wording) renameFields(text string) string {
	var out strings.Builder
	last := 0
	for _, at := range word.FindAllStringIndex(text, -1) {
		found := text[at[0]:at[1]]
		if at[0] > 0 && strings.ContainsAny(text[at[0]-1:at[0]], `"$<_`) {
			continue // a text, not a name
		}
		renamed, known := w.values[found]
		if !known {
			renamed, known = w.fields[found]
			if begins := at[0] == 0 || strings.HasSuffix(text[:at[0]], ". "); begins &&
				strings.EqualFold(found, renamed) {
				known = false
			}
		}
		if known {
			out.WriteString(text[last:at[0]] + renamed)
			last = at[1]
		}
	}
	return out.String() + text[last:]
}

// beginsWithField reports whether a description begins with the name of a field that is no word of English.
func (w wording) beginsWithField(text string) bool {
	first, _, _ := strings.Cut(text, " ")
	first = strings.TrimRight(first, ",;:")
	if strings.Contains(first, "_") {
		return true
	}
	for _, subject := range typeSubjects() {
		if first == subject {
			return true
		}
	}
	return slices.Contains([]string{"http", "url", "tls", "ttl", "cpu"}, first)
}
