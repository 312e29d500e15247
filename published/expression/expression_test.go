// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expression_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/published/expression"
)

// P1
func TestEvaluateReturnsWhatJSONHas(t *testing.T) {
	compiler := newCompiler(t)
	input := expression.Input{
		Tenant: expression.Subject{Name: "solar", Labels: map[string]string{"tier": "gold"}}, Space: expression.Subject{Name: "solar-dev"},
		Object: map[string]any{"data": map[string]any{"n": int64(3), "f": 1.5, "list": []any{"a", int64(1), nil}}},
	}
	for text, want := range map[string]any{
		"tenant.name": "solar",
		`tenant.labels["tier"] + "-" + space.name`: "gold-solar-dev",
		`tenant.labels.tier`:                       "gold",
		`space.labels.?tier.orValue("none")`:       "none",
		"size(space.labels)":                       int64(0),
		`"tier" in tenant.labels ? 10 : 1`:         int64(10),
		"object.data":                              input.Object["data"],
		"object.data.n + 1":                        int64(4),
		"object.data.f":                            1.5,
		"7u":                                       int64(7),
		"true":                                     true,
		"null":                                     nil,
		`bytes("abc")`:                             "YWJj",
		`[tenant.name].map(n, {"host": n + ".dev"})`:    []any{map[string]any{"host": "solar.dev"}},
		`string(quantity("1Gi").asInteger())`:           "1073741824",
		`tenant.name.matches("^s") && has(object.data)`: true,
	} {
		program, err := compiler.Compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		budget := expression.NewBudget(expression.CostLimit)
		got, err := program.Evaluate(t.Context(), input, budget)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, (-want +got):\n%s", text, err, diff)
		}
	}
}

func TestCompileRefusesWhatCanHaveNoValue(t *testing.T) {
	compiler := newCompiler(t)
	for text, want := range map[string]string{
		"tenant.":                           "Syntax error",
		"tenant.nme":                        "undefined field 'nme'",
		"tenant.labels + 1":                 "no matching overload",
		"host.name":                         "undeclared reference to 'host'",
		`quantity("1")`:                     "has no form in JSON",
		`timestamp("2026-01-01T00:00:00Z")`: "has no form in JSON",
		"tenant":                            "has no form in JSON",
		"space.labels[?'a']":                "has no form in JSON",
	} {
		if _, err := compiler.Compile(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error is %v, want one line that says %q", text, err, want)
		}
	}
}

// L3: the author of an expression is an admin, but a mistake of theirs must not stop a platform.
func TestEvaluateIsBounded(t *testing.T) {
	compiler := newCompiler(t)
	long := "[1,2,3,4,5,6,7,8,9,10]"
	for text, want := range map[string]string{
		`tenant.labels["absent"]`: "no such key",
		"object.absent":           "no such key",
		"1 / 0":                   "division by zero",
		"{1: 2}":                  "keys must be strings",
		"[quantity('1')]":         "has no form in JSON",
		"18446744073709551615u":   "is above",
		"1.0 / 0.0":               "no number in JSON",
		long + ".all(a, " + long + ".all(b, " + long + ".all(c, " + long + ".all(d, " + long + ".all(e, a + b + c + d + e > 0)))))": "costs too much",
		"object.big": "exceed 64 KiB",
	} {
		program, err := compiler.Compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		budget := expression.NewBudget(expression.CostLimit)
		value, err := program.Evaluate(t.Context(), expression.Input{Object: map[string]any{"big": strings.Repeat("x", expression.MaxValueBytes)}}, budget)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, the error is %v, want one line that says %q", text, value, err, want)
		}
	}
}

func newCompiler(t *testing.T) *expression.Compiler {
	t.Helper()
	compiler, err := expression.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	return compiler
}

// An expression has the same value each time, also one that loops over a map.
func TestLoopsOverMapsHaveAnOrder(t *testing.T) {
	const keys = "abcdefghijklmnop"
	labels := map[string]any{}
	for _, key := range keys {
		labels[string(key)] = map[string]any{"x": string(key), "y": string(key)}
	}
	input := expression.Input{Object: map[string]any{"labels": labels}, Value: map[string]any{"b": "b", "a": "a"}}
	for text, want := range map[string]string{
		`object.labels.map(k, k).join("")`:                                       keys,
		`[object].map(o, o.labels.map(k, o.labels[k].map(l, l)[0]).join(""))[0]`: strings.Repeat("x", len(keys)),
		`value.map(k, k).join("")`:                                               "ab",
		`object.labels.transformList(k, v, k).join("")`:                          keys,
	} {
		program, err := newCompiler(t).Compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for range 20 {
			got, err := program.Evaluate(t.Context(), input, expression.NewBudget(expression.CostLimit))
			if err != nil || got != want {
				t.Fatalf("%s: %v %v, want %s", text, got, err, want)
			}
		}
	}
}
