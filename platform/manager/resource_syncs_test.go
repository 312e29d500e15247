// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"testing"

	"github.com/berth-dev/berth/syncer/declaration"
)

// C6: a space syncs nothing to the host before its account has the rights.
func TestASpaceSyncsWhatItsAccountMay(t *testing.T) {
	t.Parallel()
	old, now := &declaration.Declaration{Name: "a", Version: "1"}, &declaration.Declaration{Name: "a", Version: "2"}
	other, shown := &declaration.Declaration{Name: "b", Version: "1"}, &declaration.Declaration{Name: "c", Version: "1", FromHost: true}
	of := func(all ...*declaration.Declaration) []*declaration.Declaration { return all }
	for what, test := range map[string]struct{ all, needs, has, want []*declaration.Declaration }{
		"nothing":                    {},
		"no rights":                  {of(now, other, shown), of(now, other), nil, of(shown)},
		"rights for all":             {of(now, other, shown), of(now, other), of(now, other), of(now, other, shown)},
		"rights for another version": {of(now, other), of(now, other), of(old, other), of(other)},
		"rights for more":            {of(now), of(now), of(now, other), of(now)},
		"a process of its own":       {of(now, other, shown), of(now, other, shown), of(now, other), of(now, other)},
	} {
		var rights accountRights
		rights.set("solar", test.has)
		rights.set("wind", of(now, other))
		if got := declaration.WatchedVersions(allowed(test.all, test.needs, rights.get("solar"))); got != declaration.WatchedVersions(test.want) {
			t.Errorf("%s: it syncs %q, want %q", what, got, declaration.WatchedVersions(test.want))
		}
		rights.begin("solar")()
		rights.forget("solar")
		if got := rights.get("solar"); len(got) > 0 || len(rights.of) != 1 || len(rights.applying) > 0 {
			t.Errorf("%s: of a space without a place, %d rights are kept", what, len(got))
		}
	}
}
