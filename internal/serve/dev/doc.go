// Package dev runs a server and an agent in one process.
package dev
