// Package enum returns the values of enumerated types of text: those that have a method Values, which lists their
// constants.
package enum

import "reflect"

// Words returns the values of an enumerated type of text, in the order of its list. It returns nil for any other type.
func Words(t reflect.Type) []string {
	values, has := t.MethodByName("Values")
	if !has || t.Kind() != reflect.String || values.Type.NumIn() != 1 || values.Type.NumOut() != 1 ||
		values.Type.Out(0) != reflect.SliceOf(t) {
		return nil
	}
	list := values.Func.Call([]reflect.Value{reflect.Zero(t)})[0]
	words := make([]string, list.Len())
	for i := range words {
		words[i] = list.Index(i).String()
	}
	return words
}
