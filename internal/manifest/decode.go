package manifest

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/jsonfields"
	"github.com/berthd/berth/internal/spelling"
)

// decode makes an object of a document's value and validates it.
func (r *reader) decode(root *node) {
	if root.shape == shapeBroken {
		return // its fault is known
	}
	if root.shape != shapeObject {
		r.fault(root.at, "", "a document must be an object with a kind, found %s", root.describe())
		return
	}
	if r.refuseForeignDocument(root) {
		return
	}
	kind := r.kind(root)
	if kind == "" {
		return
	}
	o := Object{Position: root.at, Kind: kind, Value: newValue(kind), positions: map[string]Position{}}
	rest := &node{shape: shapeObject, at: root.at, partial: root.partial}
	d := decoder{
		reader: r, kind: kind, root: rest, whole: reflect.ValueOf(o.Value).Elem(), places: o.positions,
		holes: map[string]reflect.Value{},
	}
	for _, f := range root.fields {
		if f.key != "kind" {
			rest.fields = append(rest.fields, f)
		}
	}
	d.value("", rest, d.whole)
	d.validate(&o)
	r.objects = append(r.objects, o)
}

// kind reads the document's kind. If it is missing or misspelt, kind adds a fault and returns the kind that was
// probably meant, so that the other faults of the document are found in the same run. It returns "" if nothing tells
// the kind.
func (r *reader) kind(root *node) cluster.Kind {
	f := root.field("kind")
	words := make([]string, 0, len(Kinds()))
	for _, k := range Kinds() {
		words = append(words, string(k))
	}
	wanted := "want one of " + strings.Join(words, ", ")
	switch {
	case f == nil:
		meant := likelyKind(root)
		if meant != "" {
			r.fault(root.at, "kind", "is missing: the fields are those of a %s, so write kind: %s", meant, meant)
		} else {
			r.fault(root.at, "kind", "is missing: %s", wanted)
		}
		return meant
	case f.value.shape == shapeBroken:
		return likelyKind(root)
	case f.value.shape != shapeText:
		r.fault(f.value.at, "kind", "%s, found %s", wanted, f.value.describe())
		return likelyKind(root)
	case slices.Contains(words, f.value.text):
		return cluster.Kind(f.value.text)
	}
	written := f.value.text
	if here := foreignKinds()[written]; here != "" {
		r.fault(f.value.at, "kind", "unknown kind %q: write %s (%s)", clip(written), here, kubernetesPage)
		return ""
	}
	if near := spelling.Nearest(written, slices.Values(words)); near != "" {
		r.fault(f.value.at, "kind", "unknown kind %q: did you mean %q?", clip(written), near)
		return cluster.Kind(near)
	}
	r.fault(f.value.at, "kind", "unknown kind %q: %s", clip(written), wanted)
	return likelyKind(root)
}

// likelyKind returns the only kind that has all fields of a document that several kinds do not share, or "".
func likelyKind(root *node) cluster.Kind {
	signs := map[string]cluster.Kind{
		"containers": cluster.KindTaskDefinition, "ports": cluster.KindTaskDefinition,
		"checks": cluster.KindTaskDefinition, "volumes": cluster.KindTaskDefinition,
		"definition": cluster.KindService, "template": cluster.KindService, "count": cluster.KindService,
		"scaling": cluster.KindService,
		"steps":   cluster.KindJob, "schedules": cluster.KindCron, "job": cluster.KindCron,
		"tags": cluster.KindEndpoint, "healthy_only": cluster.KindEndpoint,
		"permissions": cluster.KindCluster, "keep_jobs": cluster.KindCluster,
	}
	var likely cluster.Kind
	for _, f := range root.fields {
		switch kind := signs[f.key]; {
		case kind == "" || kind == likely:
		case likely != "":
			return ""
		default:
			likely = kind
		}
	}
	return likely
}

// decoder fills a value from nodes.
type decoder struct {
	*reader
	kind   cluster.Kind // of the document
	root   *node        // the document without its kind
	whole  reflect.Value
	places map[string]Position
	// holes are the fields without a usable value, by path: they are missing, or their values were refused.
	holes  map[string]reflect.Value
	values int // spent of MaxValues: aliases make a tree larger than its text
	full   bool
}

// value sets to, the field of a path, from a node.
func (d *decoder) value(path string, n *node, to reflect.Value) {
	if d.values++; d.values > MaxValues {
		if !d.full {
			d.full = true
			d.fault(n.at, path, "the document has more than %d values after its aliases are expanded", MaxValues)
		}
		return
	}
	if _, ok := d.places[path]; !ok && path != "" {
		d.places[path] = n.at
	}
	if n.shape == shapeNull {
		return // as if it were not written
	}
	if n.shape == shapeBroken || !d.fill(path, n, to) {
		d.holes[path] = to
	}
}

// fill sets a field from a node that is not null. It reports whether the node has the form that the field takes.
func (d *decoder) fill(path string, n *node, to reflect.Value) bool {
	if to.Kind() == reflect.Pointer { // nil is an omitted field
		to.Set(reflect.New(to.Type().Elem()))
		to = to.Elem()
	}
	if special, ok := d.special(path, n, to); special {
		return ok
	}
	switch to.Kind() {
	case reflect.Struct:
		return d.object(path, n, to)
	case reflect.Map:
		return d.table(path, n, to)
	case reflect.Slice:
		return d.list(path, n, to)
	case reflect.String:
		if !d.requireShape(path, n, shapeText, to.Type(), "text") {
			return false
		}
		to.SetString(n.text)
	case reflect.Bool:
		if !d.requireShape(path, n, shapeBool, to.Type(), "true or false") {
			return false
		}
		to.SetBool(n.text == "true")
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return d.integer(path, n, to)
	case reflect.Float64:
		return d.number(path, n, to)
	default:
		panic(fmt.Sprintf("manifest: %s: no way to read a %s", path, to.Type()))
	}
	return true
}

// special reads types that have a text form of their own. It reports whether to is one, and whether it was read.
func (d *decoder) special(path string, n *node, to reflect.Value) (special, ok bool) {
	scalar := n.shape == shapeInt || n.shape == shapeFloat || n.shape == shapeText
	switch v := to.Addr().Interface().(type) {
	case *time.Time:
		at, err := time.Parse(time.RFC3339Nano, n.text)
		if n.shape != shapeText || err != nil {
			return true, d.refuse(path, n, to.Type(), "a time such as 2026-11-20T10:00:00Z")
		}
		*v = at
	case json.Unmarshaler:
		if !scalar {
			return true, d.refuse(path, n, to.Type(), "text or a number")
		}
		raw := []byte(n.text)
		if n.shape == shapeText || !json.Valid(raw) {
			raw, _ = json.Marshal(n.text) // text is always valid
		}
		if err := v.UnmarshalJSON(raw); err != nil {
			if _, isDuration := v.(*cluster.Duration); isDuration && durationHint(n) != "" {
				err = fmt.Errorf("%q is not a duration: write %s", clip(n.text), durationHint(n))
			}
			d.fault(n.at, path, "%v", err)
			return true, false
		}
	case encoding.TextUnmarshaler:
		if n.shape != shapeText {
			return true, d.refuse(path, n, to.Type(), "text")
		}
		if err := v.UnmarshalText([]byte(n.text)); err != nil {
			d.fault(n.at, path, "%v", err)
			return true, false
		}
	default:
		return false, false
	}
	return true, true
}

// requireShape refuses a node of another shape.
func (d *decoder) requireShape(path string, n *node, s shape, t reflect.Type, words string) bool {
	return n.shape == s || d.refuse(path, n, t, words)
}

// refuse adds the fault of a node that is not what a field of a type takes, and returns false.
func (d *decoder) refuse(path string, n *node, t reflect.Type, words string) bool {
	hint := formHint(path, n, t)
	switch {
	case hint != "":
		hint = ": write " + hint
	case words == "text" && (n.shape == shapeInt || n.shape == shapeFloat || n.shape == shapeBool):
		hint = fmt.Sprintf(": put it in quotes, %q", n.text)
	case words == "true or false" && n.shape == shapeText:
		switch strings.ToLower(n.text) {
		case "yes", "on", "true", "y":
			hint = ": write true"
		case "no", "off", "false", "n":
			hint = ": write false"
		}
	}
	d.fault(n.at, path, "want %s, found %s%s", words, n.describe(), hint)
	return false
}

func (d *decoder) integer(path string, n *node, to reflect.Value) bool {
	if n.shape != shapeInt {
		return d.refuse(path, n, to.Type(), "a whole number")
	}
	if to.CanUint() {
		u, err := strconv.ParseUint(n.text, 10, 64)
		if err != nil {
			return d.refuse(path, n, to.Type(), "a whole number, 0 or more")
		}
		to.SetUint(u)
		return true
	}
	i, err := strconv.ParseInt(n.text, 10, 64)
	if err != nil {
		d.fault(n.at, path, "the number %s is too large", clip(n.text))
		return false
	}
	to.SetInt(i)
	return true
}

func (d *decoder) number(path string, n *node, to reflect.Value) bool {
	if n.shape != shapeInt && n.shape != shapeFloat {
		return d.refuse(path, n, to.Type(), "a number")
	}
	f, err := strconv.ParseFloat(n.text, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return d.refuse(path, n, to.Type(), "a finite number")
	}
	to.SetFloat(f)
	return true
}

// list sets the elements in their places, so that an element that was refused keeps the number that its path names.
func (d *decoder) list(path string, n *node, to reflect.Value) bool {
	if !d.requireShape(path, n, shapeList, to.Type(), "a list") {
		return false
	}
	length := min(len(n.items), MaxValues)
	to.Set(reflect.MakeSlice(to.Type(), length, length))
	for i, item := range n.items {
		if d.full || i == length {
			return true
		}
		at := path + "[" + strconv.Itoa(i) + "]"
		if item.shape == shapeNull {
			d.fault(item.at, at, "want a value, found nothing: write one, or remove it from the list")
			d.holes[at] = to.Index(i)
			continue
		}
		d.value(at, item, to.Index(i))
	}
	return true
}

func (d *decoder) table(path string, n *node, to reflect.Value) bool {
	if !d.requireShape(path, n, shapeObject, to.Type(), "an object of keys and values") {
		return false
	}
	out := reflect.MakeMap(to.Type())
	for _, f := range n.fields {
		if d.full {
			return true
		}
		at := path + "[" + strconv.Quote(f.key) + "]"
		d.places[at] = f.at
		element := reflect.New(to.Type().Elem()).Elem()
		d.value(at, f.value, element)
		out.SetMapIndex(reflect.ValueOf(f.key).Convert(to.Type().Key()), element)
	}
	to.Set(out)
	return true
}

func (d *decoder) object(path string, n *node, to reflect.Value) bool {
	if !d.requireShape(path, n, shapeObject, to.Type(), "an object") {
		return false
	}
	fields := fieldsOf(to.Type())
	for _, f := range n.fields {
		if d.full {
			return true
		}
		i := slices.IndexFunc(fields, func(sf structField) bool { return sf.name == f.key })
		if i < 0 {
			d.unknown(path, n, f, to)
			continue
		}
		at, field := join(path, f.key), to.FieldByIndex(fields[i].index)
		d.value(at, f.value, field)
		if f.value.shape == shapeInt && fields[i].refusesZero && field.IsZero() &&
			strings.Trim(f.value.text, "+-0") == "" {
			d.fault(f.value.at, at, "%s", cluster.ZeroCount())
			d.holes[at] = field
		}
	}
	d.requireFields(path, n, to, fields)
	d.refuseForeignVariables(path, n, to.Type())
	return true
}

// requireFields adds a fault for each required field that is not written. A field that was probably meant by an unknown
// one, or that an unreadable merge may hold, is not missing.
func (d *decoder) requireFields(path string, n *node, to reflect.Value, fields []structField) {
	for _, sf := range fields {
		at := join(path, sf.name)
		f := n.field(sf.name)
		_, meant := d.holes[at]
		switch {
		case meant, f != nil && f.value.shape != shapeNull:
			continue
		case n.partial:
		case !sf.required, to.Type() == reflect.TypeFor[cluster.Service]() && sf.name == "count" && d.hasOtherCount(n):
			continue
		default:
			d.fault(n.at, at, "is missing: %s", wayToWrite(sf.name, to.FieldByIndex(sf.index).Type()))
		}
		d.holes[at] = to.FieldByIndex(sf.index)
	}
}

// hasOtherCount reports whether another field than count says, or was meant to say, how many tasks a service has.
func (d *decoder) hasOtherCount(service *node) bool {
	for _, name := range []string{"scaling", "mode"} {
		if _, hole := d.holes[name]; hole {
			return true
		}
	}
	if f := service.field("scaling"); f != nil && f.value.shape != shapeNull {
		return true
	}
	f := service.field("mode")
	return f != nil && f.value.text == string(cluster.ModeDaemon)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// structField is a field of an object as manifests name it.
type structField struct {
	name        string
	index       []int
	required    bool
	ignored     bool // written by the control plane: a manifest's value is ignored
	refusesZero bool // an explicit 0 is refused, although 0 is the zero value
}

// fieldsOf returns the fields of a struct type, those of embedded ones among them. A field that JSON
// always writes is one that a manifest must hold.
func fieldsOf(t reflect.Type) []structField {
	var out []structField
	for f := range jsonfields.Of(t) {
		kept := f.Owner == reflect.TypeFor[cluster.Lifespan]() && f.Owner != t
		out = append(out, structField{f.Name, f.Index, !f.Optional, kept, f.Nonzero})
	}
	return out
}
