package store

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/berthd/berth/internal/cluster"
)

const (
	// MaxPlainBytes is the size up to which the record of a job or a cron holds its steps as they are. A larger record
	// has them packed (ADR 0094).
	MaxPlainBytes = 64 << 10
	// MaxJobBytes limits the record of a job or a cron as a user writes it. Consul takes 381 KB in one transaction. The
	// rest is for the event, and for the tasks that a user has tried again, which the record has packed, too.
	MaxJobBytes = 320 << 10
	// minIndexedSteps is the number of steps from which on a read job has the positions of its steps.
	minIndexedSteps = 32
	// maxUnpacked limits the JSON of packed steps, so that a damaged record cannot fill the memory.
	maxUnpacked = 64 << 20
)

// packed is the field "packed" of a record: the JSON of packedSteps, compressed with DEFLATE (RFC 1951). JSON writes it
// in base64.
type packed struct {
	Packed []byte `json:"packed,omitempty"`
}

// packedSteps are the fields of a record that grow with the steps.
type packedSteps struct {
	Steps   []cluster.Step     `json:"steps"`
	Inline  []string           `json:"inline,omitempty"`
	Retried cluster.JobRetries `json:"retried,omitzero"` // of jobs
}

// jobRecord and cronRecord are the stored forms of jobs and crons. Both have the field "packed" or the fields in it.
type (
	jobRecord struct {
		cluster.Job
		packed
	}
	cronRecord struct {
		cluster.Cron
		packed
	}
)

// packsSteps reports whether records of the type may have the field "packed".
func packsSteps(record any) bool {
	switch record.(type) {
	case *cluster.Job, *cluster.Cron:
		return true
	}
	return false
}

// packedForm returns the stored form of a large job or cron, and nil for other records.
func packedForm(record any) (form any, err error) {
	switch r := record.(type) {
	case cluster.Job:
		return packedForm(&r)
	case cluster.Cron:
		return packedForm(&r)
	case *cluster.Job:
		s := jobRecord{Job: *r}
		s.Packed, err = pack(packedSteps{s.Steps, s.Inline, s.Retried})
		s.Steps, s.Inline, s.Retried = nil, nil, cluster.JobRetries{}
		return &s, err
	case *cluster.Cron:
		s := cronRecord{Cron: *r}
		s.Packed, err = pack(packedSteps{Steps: s.Job.Steps, Inline: s.Inline})
		s.Job.Steps, s.Inline = nil, nil
		return &s, err
	}
	return nil, nil
}

// pack returns the packed form of fields.
func pack(fields packedSteps) ([]byte, error) {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.DefaultCompression)
	if err == nil {
		err = errors.Join(json.NewEncoder(w).Encode(fields), w.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("pack the steps: %w", err)
	}
	return out.Bytes(), nil
}

// unpack reads fields from their packed form; ok is false if there is none.
func (p *packed) unpack() (fields packedSteps, ok bool, err error) {
	if p.Packed == nil {
		return fields, false, nil
	}
	r := io.LimitReader(flate.NewReader(bytes.NewReader(p.Packed)), maxUnpacked)
	if err := json.NewDecoder(r).Decode(&fields); err != nil {
		return fields, false, fmt.Errorf("unpack the steps: %w", err)
	}
	return fields, true, nil
}

// unmarshal reads the JSON of a stored record.
func unmarshal(value []byte, record any) error {
	switch r := record.(type) {
	case *cluster.Job:
		var s jobRecord
		if err := json.Unmarshal(value, &s); err != nil {
			return err
		}
		fields, ok, err := s.unpack()
		if ok {
			s.Steps, s.Inline, s.Retried = fields.Steps, fields.Inline, fields.Retried
		}
		if len(s.Steps) >= minIndexedSteps {
			s.Positions = make(map[string]int, len(s.Steps))
			for i := range s.Steps {
				s.Positions[s.Steps[i].Name] = i
			}
		}
		*r = s.Job
		return err
	case *cluster.Cron:
		var s cronRecord
		if err := json.Unmarshal(value, &s); err != nil {
			return err
		}
		fields, ok, err := s.unpack()
		if ok {
			s.Job.Steps, s.Inline = fields.Steps, fields.Inline
		}
		*r = s.Cron
		return err
	}
	return json.Unmarshal(value, record)
}
