// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package declaration

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// source is what a declaration was compiled from, without what doesn't matter for it.
type source struct {
	Sync       v1alpha1.ResourceSync                    `json:"sync"`
	Definition apiextensionsv1.CustomResourceDefinition `json:"definition"`
}

func sourceOf(sync *v1alpha1.ResourceSync, crd *apiextensionsv1.CustomResourceDefinition, version *apiextensionsv1.CustomResourceDefinitionVersion) (json.RawMessage, error) {
	from := &source{
		Sync: v1alpha1.ResourceSync{ObjectMeta: metav1.ObjectMeta{Name: sync.Name, UID: sync.UID}, Spec: sync.Spec},
		Definition: apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: crd.Spec.Group, Scope: crd.Spec.Scope, Names: crd.Spec.Names, Versions: []apiextensionsv1.CustomResourceDefinitionVersion{*version},
		}},
	}
	from.Sync.Spec.Tenants = nil
	data, err := json.Marshal(from)
	if err != nil {
		return nil, fmt.Errorf("encode a ResourceSync with its definition: %w", err)
	}
	return data, nil
}

// Encode returns declarations for another process, or a file. [Decode] reads them.
func Encode(all []*Declaration) ([]byte, error) {
	sources := make([]json.RawMessage, len(all))
	for i, d := range all {
		sources[i] = d.source
	}
	data, err := json.Marshal(sources)
	if err != nil {
		return nil, fmt.Errorf("encode what is synced of a space: %w", err)
	}
	return data, nil
}

// Decode returns the declarations that [Encode] encoded, without their Watch.
func Decode(data []byte) ([]*Declaration, error) {
	var sources []source
	if err := json.Unmarshal(data, &sources); err != nil {
		return nil, fmt.Errorf("read what is synced of a space: %w", err)
	}
	all := make([]*Declaration, len(sources))
	for i := range sources {
		d, errs := Compile(&sources[i].Sync, &sources[i].Definition)
		if len(errs) > 0 {
			return nil, fmt.Errorf("read what is synced of a space, %s: %w", sources[i].Sync.Name, errs.ToAggregate())
		}
		all[i] = d
	}
	return all, nil
}

// WatchedVersions identifies declarations that are ordered by name, with their Version and their Watch. That of none is empty.
func WatchedVersions(all []*Declaration) string {
	parts := make([]string, len(all))
	for i, d := range all {
		parts[i] = fmt.Sprintf("%s@%s.%d", d.Name, d.Version, d.Watch)
	}
	return strings.Join(parts, ",")
}

// SameAs reports whether two declarations are the same, whatever their Watch.
func (d *Declaration) SameAs(other *Declaration) bool {
	return d.Name == other.Name && d.Version == other.Version && d.owner.UID == other.owner.UID
}

// Update is what another process is to sync of a space.
type Update struct {
	// Declarations are in force.
	Declarations []*Declaration
	// Keep are the names of those that stay as the process has them, because it isn't known yet whether they are in force. They are ordered.
	Keep []string
}

// encodedUpdate is an encoded [Update].
type encodedUpdate struct {
	Declarations json.RawMessage `json:"declarations"`
	Keep         []string        `json:"keep,omitempty"`
}

// Digest identifies an update: it differs for declarations that aren't the same.
func (u *Update) Digest() string {
	sum := sha256.New()
	for _, d := range u.Declarations {
		fmt.Fprintf(sum, "%q %q %q\n", d.Name, d.Version, d.owner.UID)
	}
	fmt.Fprintf(sum, "%q", u.Keep)
	return hex.EncodeToString(sum.Sum(nil))
}

// Encode returns the update for another process, which reads it with [DecodeUpdate].
func (u *Update) Encode() ([]byte, error) {
	all, err := Encode(u.Declarations)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(encodedUpdate{all, u.Keep})
	if err != nil {
		return nil, fmt.Errorf("encode what is synced of a space: %w", err)
	}
	return data, nil
}

// DecodeUpdate returns the update that [Update.Encode] encoded.
func DecodeUpdate(data []byte) (*Update, error) {
	var encoded encodedUpdate
	if err := json.Unmarshal(data, &encoded); err != nil {
		return nil, fmt.Errorf("read what is synced of a space: %w", err)
	}
	all, err := Decode(encoded.Declarations)
	if err != nil {
		return nil, err
	}
	return &Update{Declarations: all, Keep: encoded.Keep}, nil
}

// After returns the declarations that a process has after the update, ordered by name, if it had these before. What is the same as before is
// the same pointer.
func (u *Update) After(before []*Declaration) []*Declaration {
	all := slices.Clone(u.Declarations)
	for i, d := range all {
		if same := slices.IndexFunc(before, d.SameAs); same >= 0 {
			all[i] = before[same]
		}
	}
	for _, d := range before {
		if slices.Contains(u.Keep, d.Name) && !slices.ContainsFunc(all, func(o *Declaration) bool { return o.Name == d.Name }) {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b *Declaration) int { return strings.Compare(a.Name, b.Name) })
	return all
}
