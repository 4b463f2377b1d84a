package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/berthd/berth/internal/agent/hostapi"
	"github.com/berthd/berth/internal/apiserver/openapi"
	"github.com/berthd/berth/internal/schema"
)

// hostAPI returns the OpenAPI document of the API of a node.
func hostAPI(comments map[string]string) ([]byte, error) {
	document := openapi.DescribeAs(hostapi.Describe(openapi.Info{Schemas: schema.Options{Comments: comments}}),
		hostapi.Operations())
	var out bytes.Buffer
	if err := json.Indent(&out, document.JSON, "", "  "); err != nil {
		return nil, fmt.Errorf("indent the API of a node: %w", err)
	}
	return out.Bytes(), nil
}
