// Package server runs a server: it opens the store and wires the API, the control plane and the dispatcher.
package server
