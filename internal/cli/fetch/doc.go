// Package fetch reads what several commands need from the API.
package fetch
