// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// A kind of reason for which a spec fails.
const (
	// forbidden: a rule of Berth's keeps tenants from what the spec does.
	forbidden = "forbidden"
	// gap: Berth lacks it so far.
	gap = "gap"
	// environment: the cluster that the suite runs on lacks it.
	environment = "environment"
)

// reason is why some specs fail.
type reason struct {
	Kind string `json:"kind"`
	// Rule is the id of the requirement that forbids it; for that kind only.
	Rule string `json:"rule,omitempty"`
	Why  string `json:"why"`
	// Specs are their full names.
	Specs []string `json:"specs"`
	// Flaky are those that pass in some runs, or on some machines. Each needs a Why of its own kind, and is to become none.
	Flaky bool `json:"flaky,omitempty"`
}

// readExpected reads which specs are known to fail.
func readExpected(file string) ([]reason, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read expected failures: %w", err)
	}
	var reasons []reason
	if err := yaml.UnmarshalStrict(content, &reasons); err != nil {
		return nil, fmt.Errorf("read expected failures: %s: %w", file, err)
	}
	named := map[string]bool{}
	for _, r := range reasons {
		switch {
		case r.Kind != forbidden && r.Kind != gap && r.Kind != environment:
			return nil, fmt.Errorf("%s: kind %q of %q: use %s, %s or %s", file, r.Kind, r.Why, forbidden, gap, environment)
		case (r.Kind == forbidden) != (r.Rule != ""):
			return nil, fmt.Errorf("%s: %q: a rule is named by what is %s, and by nothing else", file, r.Why, forbidden)
		case r.Why == "" || len(r.Specs) == 0:
			return nil, fmt.Errorf("%s: a reason without its why, or without specs: %q", file, r.Why)
		}
		for _, spec := range r.Specs {
			if named[spec] {
				return nil, fmt.Errorf("%s: %q has two reasons", file, spec)
			}
			named[spec] = true
		}
	}
	return reasons, nil
}
