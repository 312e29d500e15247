// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	configv1alpha1 "github.com/berth-dev/berth/api/config/v1alpha1"
)

// readConfig reads a configuration file in YAML or JSON, and refuses unknown fields. With an empty path, it returns an empty
// configuration.
func readConfig(path string) (*configv1alpha1.PlatformConfiguration, error) {
	if path == "" {
		return &configv1alpha1.PlatformConfiguration{}, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := configv1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	object, _, err := decoder.Decode(data, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("--config=%s: %s; must be a PlatformConfiguration of %s", path, strings.Join(strings.Fields(err.Error()), " "), configv1alpha1.GroupVersion)
	}
	config, ok := object.(*configv1alpha1.PlatformConfiguration)
	if !ok {
		return nil, fmt.Errorf("--config=%s: must be a PlatformConfiguration of %[3]s, but is a %[2]T", path, object, configv1alpha1.GroupVersion)
	}
	return config, nil
}
