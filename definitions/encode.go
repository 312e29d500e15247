// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package definitions

import (
	"encoding/json"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// encoded is a shared definition as it is sent to another process.
type encoded struct {
	CRD    *apiextensionsv1.CustomResourceDefinition `json:"crd"`
	Forced bool                                      `json:"forced,omitempty"`
	// Webhook says how the platform reaches the conversion webhook.
	Webhook *apiextensionsv1.WebhookClientConfig `json:"webhook,omitempty"`
}

// Encode returns the set without its policy, for another process of the platform.
func Encode(s *Set) ([]byte, error) {
	all := []encoded{}
	for _, name := range s.Names() {
		one := s.Of(name)
		all = append(all, encoded{one.CRD, one.Forced, one.Webhook.Client()})
	}
	data, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("encode shared definitions: %w", err)
	}
	return data, nil
}

// Decode returns the set that Encode has encoded. It has the same version.
func Decode(data []byte) (*Set, error) {
	var all []encoded
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("decode shared definitions: %w", err)
	}
	var shared []*Shared
	for _, one := range all {
		if one.CRD == nil || !IsShared(one.CRD) {
			return nil, errors.New("decode shared definitions: one is not the platform's")
		}
		shared = append(shared, &Shared{CRD: one.CRD, Forced: one.Forced, InRange: true, Webhook: NewWebhook(one.Webhook)})
	}
	return NewSet("", shared...), nil
}
