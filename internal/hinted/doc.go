// Package hinted has errors that carry advice: what happened, and what to do next.
package hinted
