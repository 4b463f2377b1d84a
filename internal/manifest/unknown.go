package manifest

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/spelling"
)

// unknown adds the fault of a field that its object does not have: the field of another system, a misspelt one, one of
// another place, or an unknown word.
func (d *decoder) unknown(path string, object *node, f field, to reflect.Value) {
	here := to.Type()
	if advice, meant := d.foreignAdvice(here, f); advice != "" {
		d.fault(f.at, path, "unknown field %q: %s", clip(f.key), advice)
		d.mean(path, object, to, meant)
		return
	}
	var names []string
	for _, sf := range fieldsOf(here) {
		if !sf.ignored {
			names = append(names, sf.name)
		}
	}
	if near := spelling.Nearest(f.key, slices.Values(names)); near != "" {
		d.fault(f.at, path, "unknown field %q: did you mean %q?", clip(f.key), near)
		d.mean(path, object, to, near)
		return
	}
	if others := otherPlaces(f.key, d.kind); others != "" {
		d.fault(f.at, path, "unknown field %q %s: it belongs %s", clip(f.key), placeOf(here.Name(), d.kind), others)
		d.mean(path, object, to, f.key)
		return
	}
	slices.Sort(names)
	want := "want one of " + strings.Join(names, ", ")
	if len(want) > longestFieldList {
		at := strings.ToLower(string(d.kind))
		if path != "" {
			at = join(at, listIndex.ReplaceAllString(path, ""))
		}
		want = "'berth fields " + at + "' lists the fields"
	}
	d.fault(f.at, path, "unknown field %q: %s", clip(f.key), want)
}

// longestFieldList is the length of the longest list of fields in a fault, in bytes. A longer one is left to
// `berth fields`.
const longestFieldList = 70

// listIndex matches the index of an element in the path of a field.
var listIndex = regexp.MustCompile(`\[\d+\]`)

// mean notes the field that was meant by an unknown one as a hole, unless it is written as well: in the same object, or
// else at the top level of the document.
func (d *decoder) mean(path string, object *node, to reflect.Value, name string) {
	for _, sf := range fieldsOf(to.Type()) {
		if sf.name != name {
			continue
		}
		if object.field(name) == nil {
			d.holes[join(path, name)] = to.FieldByIndex(sf.index)
		}
		return
	}
	if path != "" {
		d.mean("", d.root, d.whole, name)
	}
}

// wayToWrite says how a missing field is written.
func wayToWrite(name string, t reflect.Type) string {
	if values := reflect.Zero(t).MethodByName("Values"); values.IsValid() && t.Kind() == reflect.String {
		list := values.Call(nil)[0]
		words := make([]string, list.Len())
		for i := range words {
			words[i] = list.Index(i).String()
		}
		return "want one of " + strings.Join(words, ", ")
	}
	value := strings.ToUpper(name)
	switch {
	case t == reflect.TypeFor[cluster.Ref]():
		value = "NAME@VERSION"
	case t.Kind() == reflect.Slice:
		value = "[…]"
	case t.Kind() == reflect.Map:
		value = "{KEY: VALUE}"
	case t.Kind() == reflect.Struct:
		value = "{…}"
	case t.Kind() != reflect.String:
		value = "1"
	}
	return "write " + name + ": " + value
}

// fieldPlace is a field in an object of a kind.
type fieldPlace struct {
	path   string // "steps[].placement"
	holder string // the name of the struct that has the field
}

// otherPlaces says where a field of that name belongs: in an object of the kind, or else in objects of other kinds. It
// returns "" for an unknown name.
func otherPlaces(name string, kind cluster.Kind) string {
	var others []string
	for _, k := range Kinds() {
		places := placesOf(name, reflect.TypeOf(newValue(k)).Elem(), "", nil)
		switch {
		case len(places) == 0:
		case k != kind:
			others = append(others, places[0].text(k, false))
		case places[0].path == name:
			return places[0].text(k, true)
		default:
			var here []string
			for _, p := range places[:min(len(places), 3)] {
				if strings.Count(p.path, ".") == strings.Count(places[0].path, ".") {
					here = append(here, p.text(k, true))
				}
			}
			return strings.Join(here, " or ")
		}
	}
	return strings.Join(others, " or ")
}

// text says where the field is in an object of a kind, which may be that of the document.
func (p fieldPlace) text(kind cluster.Kind, same bool) string {
	top := !strings.Contains(p.path, ".")
	switch {
	case top && same:
		return "at the top level of the " + kindNoun(kind)
	case top:
		return "at the top level of a " + string(kind)
	case same:
		return placeOf(p.holder, kind) + ", as " + p.path
	}
	return placeOf(p.holder, kind) + " of a " + string(kind) + ", as " + p.path
}

// kindNoun is the word for an object of a kind.
func kindNoun(kind cluster.Kind) string {
	if kind == cluster.KindTaskDefinition {
		return "definition"
	}
	return strings.ToLower(string(kind))
}

// placeOf says in words what a struct of a manifest is: "in a container", "at the top level of the service".
func placeOf(holder string, kind cluster.Kind) string {
	if holder == string(kind) {
		return "at the top level of the " + kindNoun(kind)
	}
	switch holder {
	case "SecretUse":
		return "in a secret of a container"
	case "ServiceUse":
		return "in a service of a container"
	case "DeviceRequest":
		return "in a device request"
	case "ScaleTarget", "SpreadTarget":
		return "in a target"
	case "ScaleSchedule":
		return "in a schedule"
	case "ScalePace":
		return "in up or down"
	case "CronJob":
		return "in job"
	case "InlineDefinition":
		return "in template"
	case "Affinity", "Artifact":
		return "in an " + strings.ToLower(holder)
	case "Resources", "Update", "Restart", "Placement", "Scaling", "Reschedule", "Gang", "RolloutWish":
		return "in " + strings.ToLower(holder)
	}
	return "in a " + strings.ToLower(holder)
}

// placesOf returns the fields of that name in a type, those with the shortest path first. It skips the types in around,
// which it already visits.
func placesOf(name string, t reflect.Type, path string, around []reflect.Type) (places []fieldPlace) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice {
			path += "[]"
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || slices.Contains(around, t) {
		return nil
	}
	around = append(slices.Clip(around), t)
	for _, sf := range fieldsOf(t) {
		if sf.ignored {
			continue
		}
		if sf.name == name {
			places = append(places, fieldPlace{join(path, name), t.Name()})
		}
		places = append(places, placesOf(name, t.FieldByIndex(sf.index).Type, join(path, sf.name), around)...)
	}
	slices.SortStableFunc(places, func(a, b fieldPlace) int {
		return cmp.Compare(strings.Count(a.path, "."), strings.Count(b.path, "."))
	})
	return places
}
