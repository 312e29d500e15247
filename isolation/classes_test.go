// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer/resources"
)

// M4: a space that sleeps keeps its rights on classes after the option was turned
// off: the host lets it make none of them all the same.
func TestClassesThatAreSwitchedOffAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		syncOptions []string
		rights      int
		off         []string
	}{
		"all are off":     {nil, 0, []string{"priorityclasses", "storageclasses", "persistentvolumes"}},
		"one is on":       {[]string{"ownpriorityclasses=7"}, 1, []string{"storageclasses", "persistentvolumes"}},
		"the next one is": {[]string{"ownstorageclasses=a.example"}, 1, []string{"priorityclasses", "persistentvolumes"}},
		"volumes are":     {[]string{"ownpersistentvolumes=a.example={space}/"}, 1, []string{"priorityclasses", "storageclasses"}},
		"none is off":     {[]string{"ownpriorityclasses=7", "ownstorageclasses=a.example", "ownpersistentvolumes=a.example=any:"}, 3, nil},
	} {
		t.Run(name, func(t *testing.T) {
			syncOptions, err := resources.Parse(test.syncOptions)
			if err != nil {
				t.Fatal(err)
			}
			if rules := isolation.ClassRules(syncOptions); len(rules) != test.rights {
				t.Errorf("a space gets the rights %v", rules)
			}
			policy := isolation.ClassPolicy(syncOptions)
			var asked, off []string
			for _, rule := range policy.MatchConstraints.ResourceRules {
				asked = append(asked, rule.Resources...)
			}
			for _, resource := range asked {
				refused := "request.resource.resource != '" + resource + "' || object == null || false"
				if slices.ContainsFunc(policy.Validations, func(v admissionv1.Validation) bool { return v.Expression == refused }) {
					off = append(off, resource)
				}
			}
			if want := []string{"priorityclasses", "storageclasses", "persistentvolumes"}; !slices.Equal(asked, want) || !slices.Equal(off, test.off) {
				t.Errorf("the host asks about %v and refuses %v, want %v and %v", asked, off, want, test.off)
			}
		})
	}
}
