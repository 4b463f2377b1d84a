package jsonfields

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
)

type inner struct {
	Deep int `json:"deep,omitzero" zero:"refused"`
}

type outer struct {
	First string `json:"first"`
	inner
	Hidden   string `json:"-"`
	Untagged bool
	private  int
}

func TestOf(t *testing.T) {
	var got []string
	for f := range Of(reflect.TypeFor[outer]()) {
		got = append(got, fmt.Sprintf("%s %s.%s %v %v %v",
			f.Name, f.Owner.Name(), f.GoName, f.Index, f.Optional, f.Nonzero))
	}
	want := []string{
		"first outer.First [0] false false",
		"deep inner.Deep [1 0] true true",
		"Untagged outer.Untagged [3] false false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	_ = outer{}.private // the field is there to be left out
}
