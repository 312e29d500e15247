// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// reachTimeout is how long the address in a kubeconfig may take to answer. Behind it, the space may be asleep: the request
// doesn't wake it.
const reachTimeout = 2 * time.Second

// reach returns an error unless a server with the right certificate answers at the address of a space. It sends no credentials.
func reach(ctx context.Context, c *Config) error {
	config, err := c.REST()
	if err != nil {
		return err
	}
	config = rest.AnonymousClientConfig(config)
	config.Timeout = reachTimeout
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", c.Server(), err)
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Server()+"/livez", nil)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", c.Server(), err)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16))
	return response.Body.Close()
}
