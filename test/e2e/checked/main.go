// Command checked is a task whose checks a test controls. It serves HTTP at ADDR_HTTP, and the standard gRPC health
// service at ADDR_GRPC and, over TLS, at ADDR_SECURE. It serves only the ports that Berth assigned.
//
//	GET  /ready            200
//	GET  /alive            200, or no answer at all once it hangs
//	POST /hang             from now on it hangs, and is deaf to TERM
//	POST /serving/{name}   the gRPC service of the name serves
//	POST /refusing/{name}  it does not
//
// It begins to listen after START_AFTER, and has the gRPC service "shop.Cart".
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	serving "google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "checked:", err)
		os.Exit(1)
	}
}

func run() error {
	after, err := time.ParseDuration(os.Getenv("START_AFTER"))
	if err == nil {
		time.Sleep(after)
	}
	var hangs atomic.Bool
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	failed := make(chan error, 3)
	of := health.NewServer()
	of.SetServingStatus("shop.Cart", serving.HealthCheckResponse_SERVING)
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	secure := credentials.NewTLS(
		&tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	// order-free: each has a port of its own
	for port, options := range map[string][]grpc.ServerOption{"ADDR_GRPC": nil, "ADDR_SECURE": {grpc.Creds(secure)}} {
		s := grpc.NewServer(options...)
		serving.RegisterHealthServer(s, of)
		listen(port, failed, s.Serve)
	}
	listen("ADDR_HTTP", failed, (&http.Server{Handler: pages(of, &hangs), ReadHeaderTimeout: time.Minute}).Serve)
	for {
		select {
		case err := <-failed:
			return err
		case <-terms:
			if !hangs.Load() {
				return nil
			}
		}
	}
}

// listen serves at the address that a variable holds, if it holds one.
func listen(variable string, failed chan<- error, serve func(net.Listener) error) {
	address := os.Getenv(variable)
	if address == "" {
		return
	}
	go func() {
		var config net.ListenConfig
		listener, err := config.Listen(context.Background(), "tcp", address)
		if err == nil {
			err = serve(listener)
		}
		failed <- fmt.Errorf("serve %s: %w", variable, err)
	}()
}

func pages(of *health.Server, hangs *atomic.Bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /alive", func(_ http.ResponseWriter, r *http.Request) {
		if hangs.Load() {
			<-r.Context().Done()
		}
	})
	mux.HandleFunc("POST /hang", func(http.ResponseWriter, *http.Request) { hangs.Store(true) })
	for verb, status := range map[string]serving.HealthCheckResponse_ServingStatus{
		"serving": serving.HealthCheckResponse_SERVING, "refusing": serving.HealthCheckResponse_NOT_SERVING,
	} { // order-free: each has a path of its own
		mux.HandleFunc("POST /"+verb+"/{name}", func(_ http.ResponseWriter, r *http.Request) {
			of.SetServingStatus(r.PathValue("name"), status)
		})
	}
	return mux
}

// selfSigned makes a self-signed certificate.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), DNSNames: []string{"checked"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
