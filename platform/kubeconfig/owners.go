// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster/pki"
)

const (
	// labelOwnerKind and annotationOwner are on the Secrets of owners. The name of an owner may be no value of a label.
	labelOwnerKind  = translate.Domain + "/owner-kind"
	annotationOwner = translate.Domain + "/owner"

	// ownerTTL is how long the certificate in an owner's Secret is valid. It is renewed at half of it.
	ownerTTL = 2 * time.Hour
)

// Owners are the Secrets with the kubeconfigs of the spaces' owners (X2). They are written and deleted like [Secrets]. An owner who
// is removed loses access even before the Secret is deleted, because the space rejects the certificate.
//
// Owners is safe for concurrent use for different spaces. For one space, one call is allowed at a time.
type Owners struct {
	secrets *Secrets
	dataDir string
	clock   clock.PassiveClock

	mu   sync.Mutex
	done map[string]publishedOwners // by space
}

// publishedOwners says that the Secrets of a space are as they must be.
type publishedOwners struct {
	state *access.State
	next  time.Time // when a certificate is to be renewed; zero for never
}

// OpenOwners returns the Secrets of a platform in a namespace of a host. If namespace is empty, it returns nil, whose methods do
// nothing.
func OpenOwners(host *rest.Config, namespace, platform, dataDir string, clock clock.PassiveClock) (*Owners, error) {
	secrets, err := OpenSecrets(host, namespace, platform)
	if err != nil || secrets == nil {
		return nil, err
	}
	return &Owners{secrets: secrets, dataDir: dataDir, clock: clock, done: map[string]publishedOwners{}}, nil
}

// Due reports whether [Owners.Publish] has something to do for a space.
func (o *Owners) Due(space string, state *access.State) bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	done, ok := o.done[space]
	return !ok || done.state != state || !done.next.IsZero() && !o.clock.Now().Round(0).Before(done.next)
}

// Publish deletes the Secrets of those who are no owners of a space any more, and writes those of the owners whose certificates are
// to be renewed. server is the URL of the space's API, which serverCA verifies. It does nothing for a space that has no keys yet. It
// returns how many owners have no Secret because there are too many. After an error, it may be called again.
func (o *Owners) Publish(ctx context.Context, space string, state *access.State, server string, serverCA []byte) (left int, err error) {
	if o == nil {
		return 0, nil
	}
	want, left := IssuableOwners(&state.Access)
	record, err := readOwners(o.dataDir, space, o.secrets.namespace)
	if err != nil {
		return left, err
	}
	var failures []error
	for _, owner := range record.stale(want) {
		failures = append(failures, o.remove(ctx, space, owner, record))
	}
	if len(want) > 0 {
		clients, err := OpenClientCA(o.dataDir, space)
		if errors.Is(err, ErrNoKeys) {
			return left, errors.Join(failures...)
		}
		if err != nil {
			return left, errors.Join(append(failures, err)...)
		}
		failures = append(failures, o.write(ctx, space, want, record, clients, server, serverCA))
	}
	if err := errors.Join(failures...); err != nil {
		return left, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done[space] = publishedOwners{state, record.next()}
	return left, nil
}

// write writes the Secrets that are due. It first records those that are new.
func (o *Owners) write(ctx context.Context, space string, want []v1alpha1.Subject, record *ownerRecord, clients *pki.CA, server string, serverCA []byte) error {
	basis := basisOf([]byte(server), serverCA, clients.PEM())
	due := record.due(want, basis, o.clock.Now().Round(0))
	if len(due) == 0 {
		return nil
	}
	for _, owner := range due {
		if record.secret(owner) == nil {
			record.Secrets = append(record.Secrets, ownerSecret{Kind: owner.Kind, Name: owner.Name})
		}
	}
	if err := record.write(o.dataDir, space); err != nil {
		return err
	}
	var failures []error
	for _, owner := range due {
		now := o.clock.Now().Round(0)
		if err := o.issue(ctx, space, owner, clients, server, serverCA); err != nil {
			failures = append(failures, err)
			continue
		}
		s := record.secret(owner)
		s.Due, s.Basis = now.Add(ownerTTL/2), basis
	}
	return errors.Join(append(failures, record.write(o.dataDir, space))...)
}

func (o *Owners) issue(ctx context.Context, space string, owner v1alpha1.Subject, clients *pki.CA, server string, serverCA []byte) error {
	r := &Request{Owner: &owner, TTL: ownerTTL}
	if err := r.complete(); err != nil {
		return err
	}
	client, err := clientFor(clients, r)
	if err != nil {
		return err
	}
	config, err := pki.Kubeconfig(space, server, serverCA, r.User, client)
	if err != nil {
		return err
	}
	return o.secrets.apply(ctx, ownerSecretOf(space, owner), map[string][]byte{kubeconfigKey: config, valueKey: config})
}

// remove deletes the Secret of an owner, and removes it from the record.
func (o *Owners) remove(ctx context.Context, space string, owner v1alpha1.Subject, record *ownerRecord) error {
	if err := o.secrets.remove(ctx, ownerSecretOf(space, owner)); err != nil {
		return err
	}
	record.remove(owner)
	return record.write(o.dataDir, space)
}

// Remove deletes the Secrets of all owners of a space.
func (o *Owners) Remove(ctx context.Context, space string) error {
	if o == nil {
		return nil
	}
	o.Forget(space)
	record, err := readOwners(o.dataDir, space, o.secrets.namespace)
	if err != nil {
		return err
	}
	var failures []error
	for _, owner := range record.stale(nil) {
		failures = append(failures, o.remove(ctx, space, owner, record))
	}
	return errors.Join(failures...)
}

// Forget makes Publish check a space again. It forgets a space that is deleted.
func (o *Owners) Forget(space string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.done, space)
}

func ownerSecretOf(space string, owner v1alpha1.Subject) identity {
	return identity{
		name: ownerSecretName(space, owner), space: space,
		labels: map[string]string{labelOwnerKind: string(owner.Kind)}, annotations: map[string]string{annotationOwner: owner.Name},
	}
}

// basisOf identifies what a kubeconfig is made with.
func basisOf(parts ...[]byte) string {
	sum := sha256.New()
	for _, part := range parts {
		own := sha256.Sum256(part)
		sum.Write(own[:])
	}
	return hex.EncodeToString(slices.Clip(sum.Sum(nil))[:16])
}
