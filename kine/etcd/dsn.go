// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"crypto/tls"
	"errors"
	"slices"
	"strings"

	"github.com/berth-dev/berth/kine/mirror"
)

// target is what a DSN says, such as https://user:password@host:2379,host2:2379/prefix.
type target struct {
	*mirror.Target
	endpoints []string // URLs
	prefix    string   // ends with a slash
	tls       *tls.Config
}

func parse(c mirror.Config) (*target, error) {
	parsed, err := c.Parse("http", "https")
	if err != nil {
		return nil, err
	}
	t := &target{Target: parsed, prefix: "/" + parsed.Path + "/"}
	scheme := "http://"
	switch {
	case len(t.Parameters) > 0:
		return nil, errors.New("the DSN must have no parameters")
	case slices.Contains(strings.Split(t.Path, "/"), ""):
		return nil, errors.New("the prefix in the DSN has an empty part")
	case t.Secure:
		scheme = "https://"
		if t.tls, err = c.TLS(); err != nil {
			return nil, err
		}
	case len(c.CA) > 0 || len(c.Cert) > 0:
		return nil, errors.New("with certificates, the DSN must begin with https://")
	}
	for _, host := range t.Hosts {
		t.endpoints = append(t.endpoints, scheme+host)
	}
	return t, nil
}

// String names the servers and the prefix.
func (t *target) String() string { return "etcd at " + strings.Join(t.Hosts, ",") + t.prefix }
