// Package server runs a server: it opens the store and connects the API, the control plane and the dispatcher.
package server
