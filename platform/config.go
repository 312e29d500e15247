// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/platform/manager"
)

// Config says what a platform runs, and how. Its functions may be called concurrently.
type Config struct {
	manager.Options
	Host HostConfig

	// Listen is HOST:PORT of the TLS listener that serves all APIs. Advertise is its URL as clients reach it,
	// https://HOST or https://HOST:PORT; the address of Listen if empty.
	Listen, Advertise string
	// MetricsListen is HOST:PORT of metrics and health, over plain HTTP; they are not served if it is empty.
	MetricsListen string

	// Serving is called once, when requests are served; Started once, when all of Spaces have been tried. Each may be nil.
	Serving, Started func(*Platform)
}

// Complete fills in defaults, and refuses values that mean nothing. An error about one is a [*fielderror.Error], or about what is
// said of spaces a [field.ErrorList]'s aggregate.
func (c *Config) Complete() error {
	c.Advertise = strings.TrimSuffix(c.Advertise, "/")
	if err := checkAdvertise(c.Advertise); err != nil {
		return fielderror.New("advertise", c.Advertise, "%w", err)
	}
	return c.Options.Complete()
}

func checkAdvertise(advertise string) error {
	if advertise == "" {
		return nil
	}
	u, err := url.Parse(advertise)
	if err == nil && (u.Scheme != "https" || u.Hostname() == "" || advertise != "https://"+u.Host) {
		err = errors.New("must be https://HOST or https://HOST:PORT")
	}
	return err
}

// Loopback is the address that kubeconfigs lead to if Listen is all of the machine's addresses, and Advertise is empty.
const Loopback = "127.0.0.1"

// ListensEverywhere reports whether Listen is all of the machine's addresses, so that it does not say by which of them
// clients come.
func (c *Config) ListensEverywhere() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	ip := net.ParseIP(host)
	return err != nil || host == "" || ip != nil && ip.IsUnspecified()
}
