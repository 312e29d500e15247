// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync/atomic"

	"github.com/traefik/traefik/v3/pkg/config/dynamic"
	"github.com/traefik/traefik/v3/pkg/middlewares/requestdecorator"
	muxer "github.com/traefik/traefik/v3/pkg/muxer/http"
	traefiktls "github.com/traefik/traefik/v3/pkg/tls"
)

// server serves what the providers' last configurations say, on both ports.
type server struct {
	store     *traefiktls.Manager
	latest    map[string]*dynamic.Configuration // by provider
	decorator *requestdecorator.RequestDecorator
	parser    muxer.SyntaxParser
	muxers    map[string]*atomic.Pointer[muxer.Muxer] // by port
}

func newServer() *server {
	parser, err := muxer.NewSyntaxParser()
	if err != nil {
		panic(err) // it is made of constants
	}
	s := &server{
		store: traefiktls.NewManager(nil), latest: map[string]*dynamic.Configuration{}, decorator: requestdecorator.New(nil), parser: parser,
		muxers: map[string]*atomic.Pointer[muxer.Muxer]{web: {}, webSecure: {}},
	}
	s.configure(context.Background(), dynamic.Message{Configuration: &dynamic.Configuration{}})
	return s
}

// at is the handler of a port.
func (s *server) at(port string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.decorator.ServeHTTP(w, r, s.muxers[port].Load().ServeHTTP)
	})
}

// certificates chooses by the host name that a client asks for.
func (s *server) certificates(*tls.ClientHelloInfo) (*tls.Config, error) {
	return s.store.Get(traefiktls.DefaultTLSStoreName, traefiktls.DefaultTLSConfigName)
}

// configure takes up one provider's configuration, beside the others'. It is not
// for use by several at once.
func (s *server) configure(ctx context.Context, message dynamic.Message) {
	s.latest[message.ProviderName] = message.Configuration
	var certificates []*traefiktls.CertAndStores
	muxers := map[string]*muxer.Muxer{web: muxer.NewMuxer(s.parser, nil), webSecure: muxer.NewMuxer(s.parser, nil)}
	for provider, configuration := range s.latest {
		if configuration.TLS != nil {
			certificates = append(certificates, configuration.TLS.Certificates...)
		}
		if configuration.HTTP == nil {
			continue
		}
		for name, router := range configuration.HTTP.Routers {
			for port, m := range muxers {
				if !enters(router, port) {
					continue
				}
				priority := router.Priority
				if priority == 0 {
					priority = muxer.GetRulePriority(router.Rule)
				}
				if err := m.AddRoute(router.Rule, "default", priority, provider, handler(configuration.HTTP, router)); err != nil {
					log.Printf("%s, %s: %v", provider, name, err)
				}
			}
		}
	}
	s.store.UpdateConfigs(ctx, nil, map[string]traefiktls.Options{traefiktls.DefaultTLSConfigName: traefiktls.DefaultTLSOptions}, certificates)
	for port, m := range muxers {
		s.muxers[port].Store(m)
	}
}

// enters reports whether a router is for a port: if it names none, for all, but
// for one that asks for TLS.
func enters(router *dynamic.Router, port string) bool {
	if len(router.EntryPoints) > 0 {
		return slices.Contains(router.EntryPoints, port)
	}
	return port == webSecure || router.TLS == nil
}

// handler leads to a server of the router's service. Middlewares are not served:
// a router that has one answers so.
func handler(all *dynamic.HTTPConfiguration, router *dynamic.Router) http.Handler {
	if len(router.Middlewares) > 0 {
		return refusal(http.StatusNotImplemented, fmt.Sprintf("the tests' controller serves no middlewares: %q", router.Middlewares))
	}
	return service(all, router.Service)
}

func service(all *dynamic.HTTPConfiguration, name string) http.Handler {
	s := all.Services[name]
	switch {
	case s == nil || len(s.Middlewares) > 0:
		return refusal(http.StatusInternalServerError, "no such service, or one with middlewares: "+name)
	case s.LoadBalancer != nil:
		return balanced(s.LoadBalancer.Servers)
	case s.Weighted != nil:
		return weighted(all, s.Weighted.Services)
	default:
		return refusal(http.StatusNotImplemented, "the tests' controller serves no service as "+name)
	}
}

// weighted is each of some services as often as its weight says.
func weighted(all *dynamic.HTTPConfiguration, services []dynamic.WRRService) http.Handler {
	var handlers []http.Handler
	for _, s := range services {
		h := service(all, s.Name)
		if s.Status != nil {
			h = refusal(*s.Status, s.Name)
		}
		weight := 1
		if s.Weight != nil {
			weight = *s.Weight
		}
		for range weight {
			handlers = append(handlers, h)
		}
	}
	return oneOf(handlers)
}

// balanced leads to one of some servers, by a connection of the request's own: one
// that is there already passes by a network policy that is new.
func balanced(servers []dynamic.Server) http.Handler {
	transport := &http.Transport{DisableKeepAlives: true}
	calls := &http.Transport{DisableKeepAlives: true, Protocols: &http.Protocols{}} // of GRPCRoutes
	calls.Protocols.SetUnencryptedHTTP2(true)
	var handlers []http.Handler
	for _, server := range servers {
		target, err := url.Parse(server.URL)
		if err != nil {
			handlers = append(handlers, refusal(http.StatusInternalServerError, err.Error()))
			continue
		}
		transport := transport
		if target.Scheme == "h2c" {
			target.Scheme, transport = "http", calls
		}
		handlers = append(handlers, &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
			r.Out.Host = r.In.Host
		}})
	}
	return oneOf(handlers)
}

func oneOf(handlers []http.Handler) http.Handler {
	if len(handlers) == 0 {
		return refusal(http.StatusServiceUnavailable, "no server")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers[rand.IntN(len(handlers))].ServeHTTP(w, r) //nolint:gosec // which server answers is no secret
	})
}

func refusal(status int, why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, why, status) })
}
