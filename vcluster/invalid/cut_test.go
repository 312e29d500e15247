// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package invalid_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/vcluster/invalid"
)

func list(n int, value any) field.ErrorList {
	var errs field.ErrorList
	for i := range n {
		errs = append(errs, field.Invalid(field.NewPath("list").Index(i), value, "is wrong"))
	}
	return errs
}

func TestHostileErrorsAreCut(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	for name, c := range map[string]struct {
		errs   field.ErrorList
		listed int
		last   string
	}{
		"none":          {nil, 0, ""},
		"few":           {list(100, "a"), 100, `list[99]: Invalid value: "a": is wrong`},
		"many":          {list(101, "a"), 101, "object: Too many: 101: errors, of which only the first 100 are listed"},
		"one is long":   {list(1, long), 1, "list[0]: Invalid value: is wrong"},
		"all are long":  {list(50, long), 3, "object: Too many: 50: errors, of which only the first 2 are listed"},
		"a long path":   {field.ErrorList{field.Required(field.NewPath(long), "")}, 1, strings.Repeat("é", 512) + "...: Required value"},
		"a long reason": {field.ErrorList{field.Forbidden(field.NewPath("a"), long)}, 1, "a: Forbidden: " + strings.Repeat("é", 512) + "..."},
	} {
		cut := invalid.Cut(c.errs)
		if len(cut) != c.listed {
			t.Errorf("%s: %d errors", name, len(cut))
		} else if len(cut) > 0 && cut[len(cut)-1].Error() != c.last {
			t.Errorf("%s: %.200s", name, cut[len(cut)-1])
		}
	}
}
