package manifest

import (
	"cmp"
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
	if root.shape != shapeObject {
		more := ""
		if root.shape == shapeText && strings.HasPrefix(root.text, `job "`) {
			more = "; this looks like a file of Nomad; see docs/guide/coming-from.md"
		}
		r.fault(root.at, "", "a document must be an object with a kind, found %s%s", root.describe(), more)
		return
	}
	kind, ok := r.kind(root)
	if !ok {
		return
	}
	o := Object{Position: root.at, Kind: kind, Value: newValue(kind), positions: map[string]Position{}}
	d := decoder{reader: r, kind: kind, places: o.positions}
	rest := &node{shape: shapeObject, at: root.at}
	for _, f := range root.fields {
		if f.key != "kind" {
			rest.fields = append(rest.fields, f)
		}
	}
	before := len(r.faults)
	d.value("", rest, reflect.ValueOf(o.Value).Elem())
	r.validate(&o, r.faults[before:])
	r.objects = append(r.objects, o)
}

// kind reads the document's kind.
func (r *reader) kind(root *node) (cluster.Kind, bool) {
	f := root.field("kind")
	words := make([]string, 0, len(Kinds()))
	for _, k := range Kinds() {
		words = append(words, string(k))
	}
	switch {
	case f == nil:
		more := ""
		if system := foreignFile(root); system != "" {
			more = "; this looks like a file of " + system +
				"; see docs/guide/coming-from.md"
		}
		r.fault(root.at, "kind", "is missing: want one of %s%s", strings.Join(words, ", "), more)
	case f.value.shape != shapeText:
		r.fault(f.value.at, "kind", "want one of %s, found %s", strings.Join(words, ", "), f.value.describe())
	case !slices.Contains(words, f.value.text):
		message := fmt.Sprintf("unknown kind %q: want one of %s", clip(f.value.text), strings.Join(words, ", "))
		if near := spelling.Nearest(f.value.text, slices.Values(words)); near != "" {
			message = fmt.Sprintf("unknown kind %q: did you mean %q?", clip(f.value.text), near)
		}
		if here := foreignKinds()[f.value.text]; here != "" {
			message = fmt.Sprintf("unknown kind %q: in Berth use %s (docs/guide/coming-from.md)", clip(f.value.text),
				here)
		}
		r.fault(f.value.at, "kind", "%s", message)
	default:
		return cluster.Kind(f.value.text), true
	}
	return "", false
}

// validator is a value that finds its own faults.
type validator interface{ Validate() error }

// validate adds the faults of the object's own validation, but for fields that were refused before.
func (r *reader) validate(o *Object, refused []Fault) {
	v, ok := o.Value.(validator)
	if !ok {
		return
	}
	refused = slices.Clone(refused)
	for _, f := range append(cluster.FaultsOf(v.Validate()), scheduleFaults(o.Value)...) {
		path := strings.ReplaceAll(f.Path, ".[", "[")
		known := slices.ContainsFunc(refused, func(g Fault) bool {
			return g.Path != "" && (within(path, g.Path) || within(g.Path, path))
		})
		if !known {
			r.fault(o.At(path), path, "%s", f.Message)
		}
	}
}

// within reports whether a path is, or leads through, another.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// decoder fills a value from nodes.
type decoder struct {
	*reader
	kind   cluster.Kind // of the document
	places map[string]Position
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
	if to.Kind() == reflect.Pointer { // nil is an omitted field
		to.Set(reflect.New(to.Type().Elem()))
		to = to.Elem()
	}
	if d.special(path, n, to) {
		return
	}
	switch to.Kind() {
	case reflect.Struct:
		d.object(path, n, to)
	case reflect.Map:
		d.table(path, n, to)
	case reflect.Slice:
		d.list(path, n, to)
	case reflect.String:
		if d.requireShape(path, n, shapeText, "text") {
			to.SetString(n.text)
		}
	case reflect.Bool:
		if d.requireShape(path, n, shapeBool, "true or false") {
			to.SetBool(n.text == "true")
		}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		d.integer(path, n, to)
	case reflect.Float64:
		d.number(path, n, to)
	default:
		panic(fmt.Sprintf("manifest: %s: no way to read a %s", path, to.Type()))
	}
}

// special reads types that have a text form of their own, and reports whether to is one.
func (d *decoder) special(path string, n *node, to reflect.Value) bool {
	scalar := n.shape != shapeObject && n.shape != shapeList && n.shape != shapeBool
	switch v := to.Addr().Interface().(type) {
	case *time.Time:
		at, err := time.Parse(time.RFC3339Nano, n.text)
		if n.shape != shapeText || err != nil {
			d.faultShape(path, n, "a time such as 2026-11-20T10:00:00Z")
			return true
		}
		*v = at
	case json.Unmarshaler:
		if !scalar {
			d.faultShape(path, n, "text or a number")
			return true
		}
		raw := []byte(n.text)
		if n.shape == shapeText || !json.Valid(raw) {
			raw, _ = json.Marshal(n.text) // text is always valid
		}
		if err := v.UnmarshalJSON(raw); err != nil {
			d.fault(n.at, path, "%v", err)
		}
	case encoding.TextUnmarshaler:
		if n.shape != shapeText {
			d.faultShape(path, n, "text")
			return true
		}
		if err := v.UnmarshalText([]byte(n.text)); err != nil {
			d.fault(n.at, path, "%v", err)
		}
	default:
		return false
	}
	return true
}

// requireShape faults a node of another shape.
func (d *decoder) requireShape(path string, n *node, s shape, words string) bool {
	if n.shape != s {
		d.faultShape(path, n, words)
		return false
	}
	return true
}

// faultShape faults a node that is not what its field takes.
func (d *decoder) faultShape(path string, n *node, words string) {
	hint := ""
	switch {
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
}

func (d *decoder) integer(path string, n *node, to reflect.Value) {
	if n.shape != shapeInt {
		d.faultShape(path, n, "a whole number")
		return
	}
	if to.CanUint() {
		u, err := strconv.ParseUint(n.text, 10, 64)
		if err != nil {
			d.faultShape(path, n, "a whole number, 0 or more")
			return
		}
		to.SetUint(u)
		return
	}
	i, err := strconv.ParseInt(n.text, 10, 64)
	if err != nil {
		d.fault(n.at, path, "the number %s is too large", clip(n.text))
		return
	}
	to.SetInt(i)
}

func (d *decoder) number(path string, n *node, to reflect.Value) {
	if n.shape != shapeInt && n.shape != shapeFloat {
		d.faultShape(path, n, "a number")
		return
	}
	f, err := strconv.ParseFloat(n.text, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		d.faultShape(path, n, "a finite number")
		return
	}
	to.SetFloat(f)
}

func (d *decoder) list(path string, n *node, to reflect.Value) {
	if !d.requireShape(path, n, shapeList, "a list") {
		return
	}
	out := reflect.MakeSlice(to.Type(), 0, min(len(n.items), 64))
	for i, item := range n.items {
		if d.full {
			return
		}
		element := reflect.New(to.Type().Elem()).Elem()
		at := path + "[" + strconv.Itoa(i) + "]"
		if item.shape == shapeNull {
			d.faultShape(at, item, "a value")
			continue
		}
		d.value(at, item, element)
		out = reflect.Append(out, element)
	}
	to.Set(out)
}

func (d *decoder) table(path string, n *node, to reflect.Value) {
	if !d.requireShape(path, n, shapeObject, "an object of keys and values") {
		return
	}
	out := reflect.MakeMap(to.Type())
	for _, f := range n.fields {
		if d.full {
			return
		}
		at := path + "[" + strconv.Quote(f.key) + "]"
		d.places[at] = f.at
		element := reflect.New(to.Type().Elem()).Elem()
		d.value(at, f.value, element)
		out.SetMapIndex(reflect.ValueOf(f.key).Convert(to.Type().Key()), element)
	}
	to.Set(out)
}

func (d *decoder) object(path string, n *node, to reflect.Value) {
	if !d.requireShape(path, n, shapeObject, "an object") {
		return
	}
	fields := fieldsOf(to.Type())
	for _, f := range n.fields {
		if d.full {
			return
		}
		i := slices.IndexFunc(fields, func(sf structField) bool { return sf.name == f.key })
		if i < 0 {
			d.unknown(path, f, fields)
			continue
		}
		at := join(path, f.key)
		d.value(at, f.value, to.FieldByIndex(fields[i].index))
		if written := f.value.shape == shapeInt; fields[i].refusesZero && written &&
			to.FieldByIndex(fields[i].index).IsZero() && strings.Trim(f.value.text, "+-0") == "" {
			d.fault(f.value.at, at, "%s", cluster.ZeroPriority())
		}
	}
	for _, sf := range fields {
		if to.Type() == reflect.TypeFor[cluster.Service]() && sf.name == "count" && hasOtherCount(n) {
			continue
		}
		if f := n.field(sf.name); sf.required && (f == nil || f.value.shape == shapeNull) {
			d.fault(n.at, join(path, sf.name), "is missing")
		}
	}
}

// hasOtherCount reports whether another field than count says how many tasks a service has.
func hasOtherCount(service *node) bool {
	if f := service.field("scaling"); f != nil && f.value.shape != shapeNull {
		return true
	}
	f := service.field("mode")
	return f != nil && f.value.text == string(cluster.ModeDaemon)
}

func (d *decoder) unknown(path string, f field, fields []structField) {
	var names []string
	for _, sf := range fields {
		if !sf.ignored {
			names = append(names, sf.name)
		}
	}
	message := fmt.Sprintf("unknown field %q", clip(f.key))
	if near := spelling.Nearest(f.key, slices.Values(names)); near != "" {
		message += fmt.Sprintf(": did you mean %q?", near)
	} else if others := otherPlaces(f.key, d.kind); others != "" {
		message += ": " + others
	} else {
		slices.Sort(names)
		message += ": want one of " + strings.Join(names, ", ")
	}
	d.fault(f.at, path, "%s", message)
}

// otherPlaces says where a field of that name belongs: in an object of the kind, or else in objects of other kinds. It
// returns "" for an unknown name.
func otherPlaces(name string, kind cluster.Kind) string {
	var here, others []string
	for _, k := range Kinds() {
		places := placesOf(name, reflect.TypeOf(newValue(k)).Elem(), "", nil)
		if len(places) == 0 {
			continue
		}
		if k == kind {
			here = places
		} else {
			others = append(others, placesText(name, k, places[:1]))
		}
	}
	if len(here) > 0 {
		return placesText(name, kind, here[:min(len(here), 3)])
	}
	return strings.Join(others, ", ")
}

// placesText names the places of a field in objects of a kind. The shortest place is the first.
func placesText(name string, kind cluster.Kind, places []string) string {
	if places[0] == name {
		return fmt.Sprintf("it belongs at the top level of a %s, as %s", kind, name)
	}
	return fmt.Sprintf("in a %s it is %s", kind, strings.Join(places, " and "))
}

// placesOf returns the paths of fields of that name in a type, the shortest first. It skips the types in around, which
// it already visits.
func placesOf(name string, t reflect.Type, path string, around []reflect.Type) (places []string) {
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
			places = append(places, join(path, name))
		}
		places = append(places, placesOf(name, t.FieldByIndex(sf.index).Type, join(path, sf.name), around)...)
	}
	slices.SortStableFunc(places, func(a, b string) int {
		return cmp.Compare(strings.Count(a, "."), strings.Count(b, "."))
	})
	return places
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
