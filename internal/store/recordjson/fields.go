package recordjson

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// The functions below read the value of a field if the field is the next one. Otherwise they leave the value as it is.

func textField[S ~string](r *reader, name string, into *S) {
	if r.field(name) {
		*into = S(r.text())
	}
}

// wordField reads a text that few distinct values fill, see internedText.
func wordField[S ~string](r *reader, name string, into *S) {
	if r.field(name) {
		*into = S(r.internedText())
	}
}

func numberField(r *reader, name string, into *int) {
	if r.field(name) {
		*into = r.number()
	}
}

func unsignedField[N ~uint64 | ~int64](r *reader, name string, into *N) {
	if r.field(name) {
		*into = N(r.unsigned())
	}
}

func boolField(r *reader, name string, into *bool) {
	if r.field(name) {
		*into = r.boolean()
	}
}

func timeField(r *reader, name string, into *time.Time) {
	if r.field(name) {
		*into = r.time()
	}
}

func durationField(r *reader, name string, into *cluster.Duration) {
	if r.field(name) {
		*into = r.duration()
	}
}

func refField(r *reader, name string, into *cluster.Ref) {
	if r.field(name) {
		*into = r.ref()
	}
}

func portsField(r *reader, name string, into *map[string]int) {
	if r.field(name) {
		*into = readMap(r, r.number)
	}
}

func devicesField(r *reader, name string, into *[]cluster.DeviceUse) {
	if r.field(name) {
		for *into = []cluster.DeviceUse{}; r.nextElement(len(*into)); {
			readDevice(r, appendZero(into))
		}
	}
}

func ownerField(r *reader, name string, into *cluster.OwnerRef) {
	if r.field(name) {
		readOwner(r, into)
	}
}

func tokenField(r *reader, name string, into *cluster.Token) {
	if r.field(name) {
		readToken(r, into)
	}
}
