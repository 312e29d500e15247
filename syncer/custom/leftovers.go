// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/engine"
)

const (
	// leftovers is the resource of the key that stands for Secrets on the host that returned for objects that are gone.
	leftovers = "secrets that returned"
	// page is how many Secrets are listed at once.
	page = 500
)

// deleteLeftovers has the engine delete, when it starts, Secrets on the host that returned for objects of the space that are gone: a syncer
// may have ended after it deleted an object on the host, and before its Secrets, or a controller of the host may have written one late.
// Secrets of ResourceSyncs that the space doesn't have stay.
func (s *syncer) deleteLeftovers() {
	var prefixes []string
	for _, sent := range s.sent {
		if sent.ReturnsSecrets() {
			prefixes = append(prefixes, declaration.ReturnedPrefix(sent.Name, s.Space))
		}
	}
	if len(prefixes) == 0 {
		return
	}
	s.Work[leftovers] = func(ctx context.Context, _ types.NamespacedName) (time.Duration, error) {
		if err := s.unsettled(); err != nil {
			return 0, err
		}
		names, err := s.secretsOnHost(ctx, prefixes)
		if err != nil {
			return 0, err
		}
		return 0, s.deleteReturned(ctx, names)
	}
	s.Sources.Add(func(q *engine.Queue) (func(), func() bool, error) {
		q.Add(engine.Key{Resource: leftovers})
		return func() {}, nil, nil
	})
}

// secretsOnHost returns the names of the Secrets in the space's namespace on the host that begin with one of these. They have no label by
// which the host's watches would know them.
func (s *syncer) secretsOnHost(ctx context.Context, prefixes []string) (names []string, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	for {
		if err := s.Host.Reader.List(ctx, list, client.InNamespace(s.Space.HostNamespace()), client.Limit(page), client.Continue(list.Continue)); err != nil {
			return nil, fmt.Errorf("list the Secrets of the space on the host: %w", err)
		}
		for i := range list.Items {
			name := list.Items[i].Name
			if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
				names = append(names, name)
			}
		}
		if list.Continue == "" {
			return names, nil
		}
	}
}
