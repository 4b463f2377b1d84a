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
	// rest is for the event, and for what servers add to the record: up to 1000 tasks to try again.
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

// packedSteps are the lists of a record that grow with the steps.
type packedSteps struct {
	Steps  []cluster.Step `json:"steps"`
	Inline []string       `json:"inline,omitempty"`
}

// jobRecord and cronRecord are the stored forms of jobs and crons. Both have the field "packed" or the lists.
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
		s.Packed, err = pack(&s.Steps, &s.Inline)
		return &s, err
	case *cluster.Cron:
		s := cronRecord{Cron: *r}
		s.Packed, err = pack(&s.Job.Steps, &s.Inline)
		return &s, err
	}
	return nil, nil
}

// pack moves the lists into their packed form.
func pack(steps *[]cluster.Step, inline *[]string) ([]byte, error) {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.DefaultCompression)
	if err == nil {
		err = errors.Join(json.NewEncoder(w).Encode(packedSteps{*steps, *inline}), w.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("pack the steps: %w", err)
	}
	*steps, *inline = nil, nil
	return out.Bytes(), nil
}

// unpack reads the lists from their packed form, if there is one.
func (p *packed) unpack(steps *[]cluster.Step, inline *[]string) error {
	if p.Packed == nil {
		return nil
	}
	r := io.LimitReader(flate.NewReader(bytes.NewReader(p.Packed)), maxUnpacked)
	var lists packedSteps
	if err := json.NewDecoder(r).Decode(&lists); err != nil {
		return fmt.Errorf("unpack the steps: %w", err)
	}
	*steps, *inline = lists.Steps, lists.Inline
	return nil
}

// unmarshal reads the JSON of a stored record.
func unmarshal(value []byte, record any) error {
	switch r := record.(type) {
	case *cluster.Job:
		var s jobRecord
		if err := json.Unmarshal(value, &s); err != nil {
			return err
		}
		err := s.unpack(&s.Steps, &s.Inline)
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
		err := s.unpack(&s.Job.Steps, &s.Inline)
		*r = s.Cron
		return err
	}
	return json.Unmarshal(value, record)
}
