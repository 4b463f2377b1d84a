package manifest

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// validator is a value that finds its own faults.
type validator interface{ Validate() error }

// validate adds the faults of the object's own validation, except those that only follow from a hole. A fault follows
// from a hole if it is in the hole, or if some value of the hole would remove it or change its words: a container whose
// image was refused does not lack a command, too. So validate fills the holes with several values in turn, and keeps
// the faults that every turn finds.
func (d *decoder) validate(o *Object) {
	v, ok := o.Value.(validator)
	if !ok || d.full {
		return
	}
	fillings, turns := map[string][]reflect.Value{}, 1
	for path, hole := range d.holes {
		fillings[path] = fillingsOf(hole.Type())
		turns = max(turns, len(fillings[path]))
	}
	var faults cluster.Faults
	for turn := range turns {
		for path, values := range fillings {
			d.holes[path].Set(values[turn%len(values)])
		}
		found := objectFaults(v)
		if turn == 0 {
			faults = found
			continue
		}
		again := make(map[cluster.Fault]bool, len(found))
		for _, f := range found {
			again[f] = true
		}
		faults = slices.DeleteFunc(faults, func(f cluster.Fault) bool { return !again[f] })
	}
	for _, hole := range d.holes {
		hole.SetZero()
	}
	for _, f := range faults {
		if !d.inHole(f.Path) && !d.namesHole(f) {
			d.fault(o.At(f.Path), f.Path, "%s", f.Message)
		}
	}
}

// objectFaults returns the faults of an object in itself, with the paths that the reader uses.
func objectFaults(v validator) cluster.Faults {
	faults := append(cluster.FaultsOf(v.Validate()), scheduleFaults(v)...)
	for i := range faults {
		faults[i].Path = strings.ReplaceAll(faults[i].Path, ".[", "[")
	}
	return faults
}

// inHole reports whether a path is that of a hole, or of a field in one.
func (d *decoder) inHole(path string) bool {
	for ; path != ""; path = parent(path) {
		if _, ok := d.holes[path]; ok {
			return true
		}
	}
	return false
}

// namesHole reports whether a fault is about the name of something that may be in a list with a hole: the port of a
// check is unknown if the list of ports was refused.
func (d *decoder) namesHole(f cluster.Fault) bool {
	for list, words := range map[string]string{
		"ports":      "is not the name of one of the definition's ports",
		"volumes":    "is not the name of one of the definition's volumes",
		"containers": "is not the name of one of the definition's containers",
	} {
		if !strings.HasSuffix(f.Message, words) {
			continue
		}
		for path := range d.holes {
			rest, ok := strings.CutPrefix(path, list)
			if ok && (rest == "" || strings.HasSuffix(rest, "]") || strings.HasSuffix(rest, "].name")) {
				return true
			}
		}
	}
	return false
}

// fillingsOf returns values of a type which together meet, or fail, most conditions that a validation can set for it:
// the zero value first, then every word of an enumeration, or small and large numbers.
func fillingsOf(t reflect.Type) []reflect.Value {
	all := []reflect.Value{reflect.Zero(t)}
	add := func(v any) { all = append(all, reflect.ValueOf(v).Convert(t)) }
	switch t {
	case reflect.TypeFor[cluster.Ref]():
		add(cluster.Ref{Name: "x", Version: 1})
		return all
	case reflect.TypeFor[cluster.Portion]():
		add(cluster.Portion{N: 1})
		return all
	}
	switch t.Kind() {
	case reflect.Pointer:
		for _, inner := range fillingsOf(t.Elem()) {
			p := reflect.New(t.Elem())
			p.Elem().Set(inner)
			all = append(all, p)
		}
	case reflect.String:
		if values := reflect.Zero(t).MethodByName("Values"); values.IsValid() {
			list := values.Call(nil)[0]
			for i := range list.Len() {
				all = append(all, list.Index(i))
			}
			return all
		}
		add("x")
		add("/x")
	case reflect.Bool:
		add(true)
	case reflect.Int, reflect.Int64, reflect.Uint64:
		add(1)
		add(1000)
		add(1 << 20)
		add(int64(time.Hour))
	case reflect.Float64:
		add(1.0)
	case reflect.Slice:
		all = append(all, reflect.MakeSlice(t, 1, 1))
	default: // an object or a map is empty
	}
	return all
}
