// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/shard"
)

// S3, O8: what a process says of its namespaces can't be refused by the host's API server, whoever has taken it over.
func TestHostileNamespacesAreNotTakenFromAProcess(t *testing.T) {
	many := make([]string, shard.MaxNamespaceNames+5)
	for i := range many {
		many[i] = fmt.Sprintf("n-%04d", i)
	}
	for reason, test := range map[string]struct{ said, want *shard.Namespaces }{
		"none, as it sleeps": {nil, nil},
		"as it should be":    {&shard.Namespaces{Count: 2, Names: []string{"a", "b"}}, &shard.Namespaces{Count: 2, Names: []string{"a", "b"}}},
		"not sorted, twice":  {&shard.Namespaces{Count: 3, Names: []string{"b", "a", "b"}}, &shard.Namespaces{Count: 3, Names: []string{"a", "b"}}},
		"no names":           {&shard.Namespaces{Count: 1, Names: []string{"", "A b", strings.Repeat("x", 64), "a.b"}}, &shard.Namespaces{Count: 1, Names: []string{}}},
		"too many":           {&shard.Namespaces{Count: 505, Names: many}, &shard.Namespaces{Count: 505, Names: many[:shard.MaxNamespaceNames]}},
		"fewer than named":   {&shard.Namespaces{Count: -1, Names: []string{"a"}}, &shard.Namespaces{Count: 1, Names: []string{"a"}}},
		"as many as fit":     {&shard.Namespaces{Count: 1<<31 - 1}, &shard.Namespaces{Count: maxNamespaces}},
	} {
		if diff := cmp.Diff(test.want, checkedNamespaces(test.said)); diff != "" {
			t.Errorf("%s: %s", reason, diff)
		}
	}
}
