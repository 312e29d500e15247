// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
)

// ErrNoEndpoint is the error of a connection to a [Service] without an address.
var ErrNoEndpoint = errors.New("no shard is ready")

// Service connects clients to addresses in turn, as a Service of Kubernetes does: only addresses that are ready get new connections,
// and connections that exist stay. It is safe for concurrent use.
type Service struct {
	mu        sync.Mutex
	addresses []string
	next      int
}

// Add gives the service one more address, HOST:PORT.
func (s *Service) Add(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addresses = append(s.addresses, address)
}

// Remove takes an address away.
func (s *Service) Remove(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addresses = slices.DeleteFunc(s.addresses, func(a string) bool { return a == address })
}

// Dial connects to one of the addresses, whatever is asked for. It has the type of [rest.Config.Dial].
func (s *Service) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	address, err := s.choose()
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

func (s *Service) choose() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.addresses) == 0 {
		return "", ErrNoEndpoint
	}
	s.next++
	return s.addresses[s.next%len(s.addresses)], nil
}
