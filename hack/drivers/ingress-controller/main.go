// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command ingress-controller is the host's ingress and gateway controller of the end-to-end
// tests: Traefik's own providers read ingresses, gateways and routes, and write
// their status; Traefik's own rules and certificate store choose where a request
// goes. What is between, a server for each port and a reverse proxy, is here:
// Traefik's server links the clients of all that it can be configured by.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/traefik/traefik/v3/pkg/config/dynamic"
	"github.com/traefik/traefik/v3/pkg/provider/kubernetes/gateway"
	"github.com/traefik/traefik/v3/pkg/provider/kubernetes/ingress"
	"github.com/traefik/traefik/v3/pkg/safe"
)

// Names of the ports, as configurations have them.
const (
	web       = "web"
	webSecure = "websecure"
)

func main() {
	class := flag.String("ingress-class", "shared", "the ingress class that is served")
	address := flag.String("address", "", "the address that ingresses and gateways are told to have")
	gateways := flag.Bool("gateways", false, "serve gateways, too")
	tcp := flag.Bool("tcp-routes", false, "write the status of TCPRoutes; the host has to have the definitions of the experimental channel")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := serve(ctx, *class, *address, *gateways, *tcp); err != nil {
		fmt.Fprintln(os.Stderr, "ingress-controller:", err)
		os.Exit(1) //nolint:gocritic // the signals are the process's
	}
}

// serve ends with its context, or when a port can't be served.
func serve(ctx context.Context, class, address string, gateways, tcp bool) error {
	pool := safe.NewPool(ctx)
	defer pool.Stop()
	configurations := make(chan dynamic.Message)
	ingresses := &ingress.Provider{
		IngressClass: class, IngressEndpoint: &ingress.EndpointIngress{IP: address}, StrictPrefixMatching: true,
	}
	if err := ingresses.Provide(configurations, pool); err != nil {
		return fmt.Errorf("watch ingresses: %w", err)
	}
	if gateways {
		p := &gateway.Provider{
			StatusAddress: &gateway.StatusAddress{IP: address},
			EntryPoints:   map[string]gateway.Entrypoint{web: {Address: ":80"}, webSecure: {Address: ":443", HasHTTPTLSConf: true}, "tcp": {Address: ":5432"}},
			// For TCPRoutes. Of these and of TLSRoutes, it only writes the status.
			ExperimentalChannel: tcp,
		}
		p.SetDefaults()
		if err := p.Init(); err != nil {
			return fmt.Errorf("watch gateways: %w", err)
		}
		if err := p.Provide(configurations, pool); err != nil {
			return fmt.Errorf("watch gateways: %w", err)
		}
	}
	s := newServer()
	failed := make(chan error, 2)
	for name, port := range map[string]string{web: ":80", webSecure: ":443"} {
		listener, err := net.Listen("tcp", port)
		if err != nil {
			return err
		}
		if name == webSecure {
			listener = tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: s.certificates})
		}
		listening := &http.Server{Handler: s.at(name), ReadHeaderTimeout: 10 * time.Second}
		go func() { failed <- listening.Serve(listener) }()
		defer func() { _ = listening.Close() }()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return errors.Join(errors.New("serve"), err)
		case message := <-configurations:
			s.configure(ctx, message)
		}
	}
}
