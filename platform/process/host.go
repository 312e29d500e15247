// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/internal/fielderror"
)

// LoadHostConfig returns the configuration of clients of the host, from a kubeconfig, or, if path is empty, from what
// the cluster provides to this pod.
func LoadHostConfig(path string) (*rest.Config, error) {
	if path == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fielderror.New("host-kubeconfig", "", "name a cluster, as this is no pod of one: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fielderror.New("host-kubeconfig", path, "%w", err)
	}
	return config, nil
}
