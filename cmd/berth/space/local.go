// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/connection"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/kubeconfig"
)

// ownerTTL is how long a kubeconfig for an owner is valid, as in the Secrets of owners.
const ownerTTL = 2 * time.Hour

// localConfig returns how to get a kubeconfig from the data directory of a Berth on this machine. It returns nil if that has no
// such space.
func localConfig(ctx context.Context, dir string, wanted connection.Wanted, host *hostapi.Client) func() ([]byte, error) {
	known, err := datadir.Kubeconfigs(dir)
	if err != nil || !slices.Contains(known, wanted.Space) || wanted.Space == datadir.HostName {
		return nil
	}
	return func() ([]byte, error) {
		if wanted.Owner == "" {
			return kubeconfig.Read(dir, wanted.Space)
		}
		owner, err := findOwner(ctx, wanted, host)
		if err != nil {
			return nil, err
		}
		data, err := kubeconfig.Issue(dir, wanted.Space, kubeconfig.Request{Owner: &owner, TTL: ownerTTL}) // it ends with the owner
		if err != nil {
			return nil, fmt.Errorf("issue a kubeconfig for owner %s of space %s: %w", wanted.Owner, wanted.Space, err)
		}
		return data, nil
	}
}

// findOwner returns the owner of a space that is wanted. Without a host, which knows the owners, it takes the name for that of a
// user: the space decides what the user may do.
func findOwner(ctx context.Context, wanted connection.Wanted, host *hostapi.Client) (v1alpha1.Subject, error) {
	guess := v1alpha1.Subject{Kind: cmp.Or(wanted.OwnerKind, v1alpha1.UserKind), Name: wanted.Owner}
	if host == nil {
		return guess, nil
	}
	var space v1alpha1.Space
	if err := host.Get(ctx, client.ObjectKey{Name: wanted.Space}, &space); err != nil {
		return guess, nil //nolint:nilerr // the keys are here, whatever the host says
	}
	var known []string
	for _, owner := range space.Spec.Access.Owners {
		if owner.Name == wanted.Owner && (wanted.OwnerKind == "" || owner.Kind == wanted.OwnerKind) {
			return v1alpha1.Subject{Kind: owner.Kind, Name: owner.Name}, nil
		}
		known = append(known, fmt.Sprintf("%s:%s", owner.Kind, owner.Name))
	}
	if len(known) == 0 {
		return guess, fmt.Errorf("--as-owner=%s: space %s has no owners; set spec.owners of its tenant", wanted.Owner, wanted.Space)
	}
	return guess, fmt.Errorf("--as-owner=%s: is no owner of space %s; found: %s", wanted.Owner, wanted.Space, strings.Join(known, ", "))
}
