// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dns01 stands for lego's, of which Traefik's certificate store asks for
// one function. Certificates here come from secrets; with lego would come clients
// of every DNS provider there is.
package dns01

import "strings"

// UnFqdn is a name without the dot at its end.
func UnFqdn(name string) string { return strings.TrimSuffix(name, ".") }
