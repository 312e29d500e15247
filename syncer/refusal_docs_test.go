// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// X4: each reason of the events by which Berth tells a tenant something is one of
// the constants, and docs/reference/events.md has a row about each of them, and no other.
func TestTheReasonsOfEventsAreDocumented(t *testing.T) {
	files, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	constant, told := regexp.MustCompile(`(?m)^\t(Reason\w+)\s+= "(\w+)"`), regexp.MustCompile(`[rR]ecorder\.Record\([^,]+, [^,]+, ([^,]+),`)
	reasons, calls := map[string]string{}, 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range constant.FindAllStringSubmatch(string(text), -1) {
			reasons[found[2]] = found[1]
		}
		for _, found := range told.FindAllStringSubmatch(string(text), -1) {
			if calls++; !strings.HasPrefix(strings.TrimPrefix(found[1], "engine."), "Reason") && found[1] != "r.Reason" {
				t.Errorf("%s tells of %s: make its reason a constant Reason…, so that it gets documented", file, found[1])
			}
		}
	}
	if calls < 4 {
		t.Errorf("found only %d calls that tell a tenant something: this test looks for another name", calls)
	}
	doc, err := os.ReadFile("../docs/reference/events.md")
	if err != nil {
		t.Fatal(err)
	}
	_, events, _ := strings.Cut(string(doc), "\n## Reasons\n")
	events, _, _ = strings.Cut(events, "\n## ")
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(events, -1) {
		documented = append(documented, row[1])
	}
	slices.Sort(documented)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(reasons)), documented); diff != "" {
		t.Errorf("docs/reference/events.md tells of other reasons: -code +documentation:\n%s", diff)
	}
}
