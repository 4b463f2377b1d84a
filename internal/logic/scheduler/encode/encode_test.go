package encode_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/encode"
)

// values is a sequence of values of the same kinds, as the parts of a key are.
type values struct {
	texts   []string
	numbers []uint64
	labels  cluster.Labels
}

func drawValues(t *rapid.T) values {
	text := rapid.SampledFrom([]string{"", "a", "b", "ab", "\x00", "\x01", "\x01a", "a\x01b"})
	v := values{labels: cluster.Labels{}}
	for range 3 {
		v.texts = append(v.texts, text.Draw(t, "text"))
		v.numbers = append(v.numbers, rapid.OneOf(
			rapid.SampledFrom([]uint64{0, 1, 255, 256, 1<<16 - 1, 1 << 32, 1<<64 - 1}), rapid.Uint64(),
		).Draw(t, "number"))
	}
	for range rapid.IntRange(0, 2).Draw(t, "labels") {
		v.labels[text.Draw(t, "key")] = text.Draw(t, "value")
	}
	return v
}

func (v values) key() (b []byte) {
	for i := range v.texts {
		b = encode.Number(encode.Text(b, v.texts[i]), v.numbers[i])
	}
	return encode.Labels(b, v.labels)
}

// TestKeysAreOfOneSequence checks that two sequences of values have equal keys only if they are equal, and that no key
// is the beginning of another one, so more values may follow.
func TestKeysAreOfOneSequence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawValues(t), drawValues(t)
		if rapid.Bool().Draw(t, "near") {
			b = a
			b.texts = slices.Clone(a.texts)
			b.texts[1], b.texts[2] = a.texts[2], a.texts[1]
		}
		same := slices.Equal(a.texts, b.texts) && slices.Equal(a.numbers, b.numbers) && maps.Equal(a.labels, b.labels)
		if got := bytes.Equal(a.key(), b.key()); got != same {
			t.Fatalf("%+v and %+v have equal keys: %v, want %v", a, b, got, same)
		}
		if !same && bytes.HasPrefix(a.key(), b.key()) {
			t.Fatalf("the key of %+v begins with that of %+v", a, b)
		}
	})
}

// TestNumbersAreShort checks the length of numbers: a byte, and as few more as they need.
func TestNumbersAreShort(t *testing.T) {
	for n, want := range map[uint64]int{0: 1, 1: 2, 255: 2, 256: 3, 1<<64 - 1: 9} {
		if got := len(encode.Number([]byte("before"), n)) - len("before"); got != want {
			t.Errorf("%d takes %d bytes, want %d", n, got, want)
		}
	}
}
