// Package output formats results: tables, colours, JSON, YAML, templates, sizes and times.
package output
