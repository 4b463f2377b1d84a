package enum

import (
	"reflect"
	"slices"
	"testing"
)

type colour string

func (colour) Values() []colour { return []colour{"red", "green"} }

type text string

type foreign string

func (foreign) Values() []colour { return nil }

type number int

func (number) Values() []number { return []number{1} }

func TestWords(t *testing.T) {
	if got, want := Words(reflect.TypeFor[colour]()), []string{"red", "green"}; !slices.Equal(got, want) {
		t.Errorf("values of an enumerated type: got %v, want %v", got, want)
	}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[text](), reflect.TypeFor[foreign](), reflect.TypeFor[number](),
		reflect.TypeFor[string](),
	} {
		if got := Words(typ); got != nil {
			t.Errorf("%v: got %v, want none", typ, got)
		}
	}
}
