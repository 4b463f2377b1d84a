// Package output prints: tables, colours, JSON, YAML, templates, and sizes and times in words.
package output
