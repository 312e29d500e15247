// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/platform/datadir"
)

// ownersFile is in the directory of a space, and lists the Secrets of its owners. Berth may not list Secrets, so it notes each one
// before it is written, and until it is deleted. So no crash leaves one behind.
const ownersFile = "owner-kubeconfigs.json"

// ownerRecord is what is known of the Secrets of a space's owners.
type ownerRecord struct {
	// Namespace is that of the Secrets.
	Namespace string        `json:"namespace"`
	Secrets   []ownerSecret `json:"secrets"`
}

// ownerSecret is the Secret of one owner.
type ownerSecret struct {
	Kind v1alpha1.SubjectKind `json:"kind"`
	Name string               `json:"name"`
	// Due is when its certificate is to be renewed; zero if the Secret may not be there yet.
	Due time.Time `json:"due,omitzero"`
	// Basis identifies the endpoint and the CAs that it was made with.
	Basis string `json:"basis,omitempty"`
}

func (s *ownerSecret) subject() v1alpha1.Subject { return v1alpha1.Subject{Kind: s.Kind, Name: s.Name} }

// secret returns the entry of an owner; nil if there is none.
func (r *ownerRecord) secret(owner v1alpha1.Subject) *ownerSecret {
	if i := slices.IndexFunc(r.Secrets, func(s ownerSecret) bool { return s.subject() == owner }); i >= 0 {
		return &r.Secrets[i]
	}
	return nil
}

func (r *ownerRecord) remove(owner v1alpha1.Subject) {
	r.Secrets = slices.DeleteFunc(r.Secrets, func(s ownerSecret) bool { return s.subject() == owner })
}

// stale returns the owners who have a Secret and are to have none.
func (r *ownerRecord) stale(want []v1alpha1.Subject) (stale []v1alpha1.Subject) {
	for i := range r.Secrets {
		if owner := r.Secrets[i].subject(); !slices.Contains(want, owner) {
			stale = append(stale, owner)
		}
	}
	return stale
}

// due returns those of the owners whose Secrets are to be written.
func (r *ownerRecord) due(want []v1alpha1.Subject, basis string, now time.Time) (due []v1alpha1.Subject) {
	for _, owner := range want {
		if s := r.secret(owner); s == nil || s.Basis != basis || !now.Before(s.Due) {
			due = append(due, owner)
		}
	}
	return due
}

// next returns when the first certificate is to be renewed; zero if there is none.
func (r *ownerRecord) next() (next time.Time) {
	for i := range r.Secrets {
		if due := r.Secrets[i].Due; next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return next
}

func ownersPath(dataDir, space string) string {
	return filepath.Join(datadir.Space(dataDir, space), ownersFile)
}

// readOwners returns the record of a space. Secrets in another namespace, which an earlier configuration named, are not in it.
func readOwners(dataDir, space, namespace string) (*ownerRecord, error) {
	record, err := datadir.ReadJSON[ownerRecord](ownersPath(dataDir, space))
	if err != nil {
		return nil, fmt.Errorf("read which owners of space %s have a Secret: %w", space, err)
	}
	if record == nil || record.Namespace != namespace {
		record = &ownerRecord{Namespace: namespace}
	}
	return record, nil
}

func (r *ownerRecord) write(dataDir, space string) error {
	if err := datadir.WriteJSON(ownersPath(dataDir, space), r); err != nil {
		return fmt.Errorf("write which owners of space %s have a Secret: %w", space, err)
	}
	return nil
}
