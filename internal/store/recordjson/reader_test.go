package recordjson_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/recordjson"
)

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// readable returns an empty record of each type that the reader knows.
func readable() []any {
	return []any{
		new(cluster.Observed), new(cluster.Desired), new(cluster.Outcome), new(cluster.PlanRecord),
		new(cluster.EventBatch),
	}
}

// The reader reads every field that Encode writes, with the same result as encoding/json. The test fails if a type has
// a field or an order that the reader does not know.
func TestReaderReadsWhatEncodeWrites(t *testing.T) {
	for _, record := range readable() {
		kind := reflect.TypeOf(record).Elem()
		t.Run(kind.Name(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				v := reflect.New(kind)
				fill(t, v.Elem())
				value, err := store.Encode(v.Interface())
				if err != nil {
					t.Fatal(err)
				}
				if !readsAsJSON(t, kind, value) {
					t.Fatalf("irregular: %s", value)
				}
			})
		})
	}
}

// fill sets a value to random content, or leaves it empty.
func fill(t *rapid.T, v reflect.Value) {
	if v.Kind() != reflect.Struct && rapid.IntRange(0, 4).Draw(t, "left out") == 0 {
		return
	}
	switch into := v.Addr().Interface().(type) {
	case *time.Time:
		*into = time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "second"),
			rapid.Int64Range(0, 1e9-1).Draw(t, "nanosecond")).UTC()
		return
	case *cluster.Ref:
		*into = cluster.Ref{
			Name:    rapid.StringMatching(`[a-z]{1,3}`).Draw(t, "name"),
			Version: rapid.IntRange(0, 3).Draw(t, "version"),
		}
		return
	case *cluster.Bytes:
		*into = cluster.Bytes(rapid.Int64Range(0, 1e15).Draw(t, "bytes"))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(t, field)
		}
	case reflect.String:
		v.SetString(rapid.OneOf(
			rapid.SampledFrom([]string{
				"running", "Job", "a", "exited", "<&>", "line\nand \"quote\"", "grün", "\xff",
				"\u2028",
			}), rapid.String(),
		).Draw(t, "text"))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64Range(-1e12, 1e12).Draw(t, "number"))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64Range(0, 1e18-1).Draw(t, "number"))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		n := rapid.IntRange(0, 3).Draw(t, "length")
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(t, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			value := reflect.New(v.Type().Elem()).Elem()
			if value.Kind() == reflect.Int {
				value.SetInt(int64(rapid.IntRange(0, 70000).Draw(t, "value")))
			} else {
				fill(t, value)
			}
			v.SetMapIndex(reflect.ValueOf(rapid.String().Draw(t, "key")), value)
		}
	default:
		t.Fatalf("the test knows no %s", v.Type())
	}
}

// readsAsJSON reports whether the reader reads a value, and compares the result with that of encoding/json.
func readsAsJSON(t interface{ Fatalf(string, ...any) }, kind reflect.Type, value []byte) bool {
	got, want := reflect.New(kind).Interface(), reflect.New(kind).Interface()
	const head = len(`{"v":1`)
	usual := len(value) > head && bytes.HasPrefix(value, []byte(`{"v":`)) && isDigit(value[head-1]) && !isDigit(value[head])
	if !usual || !recordjson.Read(value, head, got) {
		return false
	}
	if err := json.Unmarshal(value, want); err != nil {
		t.Fatalf("%s is read, and no record: %v", value, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s (-json +reader):\n%s", value, cmp.Diff(want, got))
	}
	return true
}

// The reader leaves a record in another form than Encode's to encoding/json, or reads the same from it.
func TestReaderLeavesIrregularRecords(t *testing.T) {
	const whole = `{"v":1,"task":"t","attempt":1,"uuid":"u","node":"n","session":1,"seq":12,"ports":{"a":1,"b":2},` +
		`"state":"running",` +
		`"containers":[{"name":"c","state":"running"},{"name":"d","state":"exited","exit":{"code":1}}],"gone":true}`
	if !readsAsJSON(t, reflect.TypeFor[cluster.Observed](), []byte(whole)) {
		t.Error("the whole one is irregular")
	}
	for _, change := range [][2]string{
		{`"task"`, `"Task"`},
		{`"task":"t",`, `"task":"t","task":"t",`},
		{`"attempt":1,`, `"attempt":01,`},
		{`"attempt":1,`, `"attempt":1.0,`},
		{`"attempt":1,`, `"attempt":1e3,`},
		{`"attempt":1,`, `"attempt":,`},
		{`"attempt":1,`, `"attempt":-,`},
		{`"attempt":1,`, `"attempt":1,,`},
		{`"attempt":1,`, `"attempt":null,`},
		{`"seq":12`, `"seq":1234567890123456789`},
		{`"seq":12`, `"seq":-1`},
		{`"node":"n"`, `"node" : "n"`},
		{`"node":"n"`, "\"node\":\"\n\""},
		{`"node":"n"`, `"node":"\x"`},
		{`"node":"n"`, `"node":"\`},
		{`"node":"n"`, `"node":1`},
		{`{"a":1,"b":2}`, `{"a":1,"b":2,}`},
		{`{"a":1,"b":2}`, `{"a":1"b":2}`},
		{`{"a":1,"b":2}`, `null`},
		{`"ports"`, `"parts"`},
		{`},{`, `}{`},
		{`}],`, `},],`},
		{`true}`, `true,}`},
		{`true}`, `tru}`},
		{`true}`, `true} `},
		{`true}`, `true`},
		{`{"v":1,`, `{"v":1,,`},
		{`{"v":1,`, `{"v":1`},
	} {
		irregular := strings.Replace(whole, change[0], change[1], 1)
		if irregular == whole {
			t.Fatalf("%s is not there", change[0])
		}
		if readsAsJSON(t, reflect.TypeFor[cluster.Observed](), []byte(irregular)) {
			t.Errorf("%s is read", irregular)
		}
		_, err := store.Decode[cluster.Observed]([]byte(irregular))
		if want := json.Unmarshal([]byte(irregular), new(cluster.Observed)); (err == nil) != (want == nil) {
			t.Errorf("%s: got %v, want what encoding/json says: %v", irregular, err, want)
		}
	}
}

// FuzzReader searches for records with different results from the reader and encoding/json.
func FuzzReader(f *testing.F) {
	at := time.Unix(1e9, 5).UTC()
	for i, record := range []any{
		&cluster.Observed{
			Task: "c.s.1.0", Attempt: 1, Ports: map[string]int{"http": 80},
			Devices: []cluster.DeviceUse{{ID: "g", Share: 500, Memory: 1 << 30}}, Started: at,
			Containers: []cluster.ContainerStatus{{Name: "c", Exit: &cluster.Exit{Code: -1, At: at}}},
		},
		&cluster.Desired{
			Task: "c.s.1.0", TimeLimit: 5e9, Stop: &cluster.Stop{Reason: "drain"},
			RequestCounter: &cluster.RequestCounter{Port: "http"}, Placed: at,
		},
		&cluster.Outcome{Task: "c.s.1.0", Message: "\"\u2028<", Ended: at},
		&cluster.PlanRecord{
			Seq:    3,
			Owners: []cluster.PlanOwner{{TimeLimit: 1e9, Tasks: []cluster.Placed{{Index: 1}, {Index: 2}}}, {}},
		},
		&cluster.EventBatch{
			ID:     "e",
			Events: []cluster.Event{{Type: "a", Owner: &cluster.OwnerRef{Kind: "Job"}}, {Type: "b", Count: 3}},
		},
	} {
		value, err := store.Encode(record)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), value)
		f.Add(uint8(i), bytes.ReplaceAll(value, []byte(`":`), []byte(`": `)))
	}
	kinds := readable()
	f.Fuzz(func(t *testing.T, kind uint8, value []byte) {
		readsAsJSON(t, reflect.TypeOf(kinds[int(kind)%len(kinds)]).Elem(), value)
	})
}
