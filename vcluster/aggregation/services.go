// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregation

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// MaxServices is how many API services of a space are served by its pods. What is
// kept of one takes a few megabytes at most.
const MaxServices = 32

// Services are the API services of a space that its pods serve. The zero value
// has none; its methods may be called concurrently.
type Services struct {
	any     atomic.Bool // spares the spaces without one the look-up
	mu      sync.RWMutex
	servers map[string]*server // by the API service's name
}

// Handler has the servers of API services answer for them, and next for
// everything else. It is for requests that are authenticated and authorized.
func (s *Services) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.any.Load() {
			if server := s.at(r.URL.Path); server != nil {
				server.ServeHTTP(w, r)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// Has tells whether a group and version, such as example.com/v1, is one of them.
func (s *Services) Has(groupVersion string) bool {
	return s.any.Load() && s.at("/apis/"+groupVersion) != nil
}

// OpenAPI lists the paths, below /openapi/v3, of the documents that their
// servers describe themselves by.
func (s *Services) OpenAPI() []string {
	if !s.any.Load() {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var paths []string
	for _, server := range s.servers {
		if server.available.Load() {
			paths = append(paths, "apis/"+server.spec.Group+"/"+server.spec.Version)
		}
	}
	return paths
}

// at is the server that answers for a path, nil if none does.
func (s *Services) at(path string) *server {
	path, document := strings.CutPrefix(path, "/openapi/v3")
	path, ok := strings.CutPrefix(path, "/apis/")
	if !ok {
		return nil
	}
	group, path, _ := strings.Cut(path, "/")
	version, _, deeper := strings.Cut(path, "/")
	if document && deeper {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.servers[version+"."+group]
}

// put has made answer for an API service, and reports whether the bound allows it.
// The one that did before is closed.
func (s *Services) put(name string, made *server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.servers[name]
	if before == nil && len(s.servers) >= MaxServices {
		return false
	}
	if s.servers == nil {
		s.servers = map[string]*server{}
	}
	if before != nil {
		before.close()
	}
	s.servers[name] = made
	s.any.Store(true)
	return true
}

func (s *Services) get(name string) *server {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.servers[name]
}

// remove tells whether there was one.
func (s *Services) remove(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.servers[name]
	if before == nil {
		return false
	}
	before.close()
	delete(s.servers, name)
	s.any.Store(len(s.servers) > 0)
	return true
}

// close ends all of them.
func (s *Services) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, server := range s.servers {
		server.close()
	}
	s.servers = nil
	s.any.Store(false)
}
