// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/bounds"
)

func TestALimitIsOfAllSpacesOrOfOne(t *testing.T) {
	o := limitOptions{limits: []string{"memory-bytes=512Mi", "watches=10", "team-a:watches=20"}}
	limits, err := o.options()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		space    string
		quantity bounds.Quantity
		want     int64
	}{
		{"team-a", bounds.MemoryBytes, 512 << 20},
		{"team-a", bounds.Watches, 20},
		{"team-b", bounds.Watches, 10},
		{"team-b", bounds.Objects, bounds.Objects.Bound().Default},
	} {
		if got := limits.of(c.space).Of(c.quantity); got != c.want {
			t.Errorf("limit %s of %s is %d, want %d", c.quantity, c.space, got, c.want)
		}
	}
}

func TestALimitThatMeansNothingIsRefused(t *testing.T) {
	for value, says := range map[string]string{
		"memory=1Gi":         `"memory" names no limit of a space`,
		"service-ports=5":    `"service-ports" names no limit of a space`,
		"watches":            `"" is no number`,
		"watches=many":       `"many" is no number`,
		"watches=0":          `"0" is not a whole number of watches above zero`,
		"watches=500m":       `"500m" is not a whole number of watches above zero`,
		"Not_Ok:watches=500": "--limit",
	} {
		o := limitOptions{limits: []string{value}}
		if _, err := o.options(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("--limit %s = %v, want it to say %q", value, err, says)
		}
	}
}
