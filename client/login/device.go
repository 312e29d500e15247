// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/internal/fielderror"
)

// Device gets tokens by a browser on any machine, in which the user must open a URL, and enter a code. Both are given to show; the URL may
// have the code already.
func (c *Client) Device(ctx context.Context, show func(url, code string)) (*Tokens, error) {
	s, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	if s.Endpoint.DeviceAuthURL == "" {
		return nil, fielderror.New("issuer", c.Issuer, "it has no flow for devices; don't use --device, and open the URL in a browser on this machine")
	}
	if err := secure(s.Endpoint.DeviceAuthURL); err != nil {
		return nil, fielderror.New("issuer", c.Issuer, "it names the URL %q: %w", s.Endpoint.DeviceAuthURL, err)
	}
	begun, err := s.DeviceAuth(s.ctx)
	if err != nil {
		return nil, denied("begin the login", err)
	}
	url := begun.VerificationURIComplete
	if url == "" {
		url = begun.VerificationURI
	}
	if err := secure(url); err != nil {
		return nil, fielderror.New("issuer", c.Issuer, "it names the URL %q: %w", url, err)
	}
	show(url, begun.UserCode)
	issued, err := s.DeviceAccessToken(s.ctx, begun)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("wait for the login: %w", ctx.Err())
		}
		return nil, denied("get tokens", err)
	}
	tokens, err := s.tokens(issued, "")
	if err != nil {
		return nil, err
	}
	return tokens, c.replace(tokens)
}
