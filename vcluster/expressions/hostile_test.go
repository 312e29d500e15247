// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions_test

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/berth-dev/berth/internal/testrace"
	"github.com/berth-dev/berth/vcluster/expressions"
)

func TestMain(m *testing.M) {
	expressions.BoundPatterns()
	os.Exit(m.Run())
}

// environmentOf is one as upstream makes them, with two variables.
func environmentOf(t *testing.T) *cel.Env {
	t.Helper()
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	env, err := base.NewExpressionsEnv().Extend(cel.Variable("s", cel.StringType), cel.Variable("p", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	return env
}

func evaluate(t *testing.T, expression, s string, p any) (ref.Val, uint64, error) {
	t.Helper()
	env := environmentOf(t)
	compiled, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", expression, issues.Err())
	}
	program, err := env.Program(compiled)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	result, details, err := program.Eval(map[string]any{"s": s, "p": p})
	return result, *details.ActualCost(), err
}

// L3: a regular expression of 21 KB takes a second and 700 MiB to compile, and 136 MiB once it is. It is refused wherever it
// stands: a literal before anything compiles it, any other as it is used.
func TestHostileRegularExpressionsInExpressionsAreBounded(t *testing.T) {
	large := strings.Repeat("a{1000}", 10)
	const says = "limit pattern-instructions"
	env := environmentOf(t)
	for _, call := range []string{"s.matches(%)", "matches(s, %)", "s.find(%) == ''", "s.findAll(%) == []", "s.findAll(%, 1) == []", "[s].all(x, x.matches(%))"} {
		if _, issues := env.Compile(strings.ReplaceAll(call, "%", "'"+large+"'")); issues.Err() == nil || !strings.Contains(issues.Err().Error(), says) {
			t.Errorf("%s with a large literal: %v", call, issues.Err())
		}
		for _, pattern := range []string{"p", "('" + large + "' + s)", "['" + large + "'][0]", "'aaaaaaaaaa'.replace('a', 'a{1000}')"} {
			if _, _, err := evaluate(t, strings.ReplaceAll(call, "%", pattern), "x", large); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s with %.20s: %v", call, pattern, err)
			}
		}
	}
	if _, _, err := evaluate(t, "s.matches(p)", "x", strings.Repeat("a", 5000)); err == nil || !strings.Contains(err.Error(), "limit pattern-bytes") {
		t.Errorf("a long pattern: %v", err)
	}
}

// L3: a short pattern with a large repetition takes 10 ms for a text of 3,000 characters. By upstream's cost it was evaluated
// 1,100 times before the limit stopped it, in 50 s.
func TestHostileRegularExpressionsCostAsLargeOnesDo(t *testing.T) {
	testrace.SkipAlone(t)
	for _, expression := range []string{"s.matches('(a?){800}b')", "s.matches(p)", "s.find(p) == ''"} {
		_, cost, err := evaluate(t, expression, strings.Repeat("a", 3000), "(a?){800}b")
		if err != nil || cost < 100_000 {
			t.Errorf("%s costs %d, %v", expression, cost, err)
		}
	}
	if _, cost, err := evaluate(t, "[1,2,3,4,5,6,7,8,9].all(i, ![1,2,3,4,5,6,7,8,9].exists(j, s.matches(p)))", strings.Repeat("a", 3000), "(a?){800}b"); err == nil {
		t.Errorf("81 of them cost %d", cost)
	}
	// An empty text costs what it takes to compile the pattern.
	if _, cost, err := evaluate(t, "s.matches(p)", "", "(a?){800}b"); err != nil || cost < 800 {
		t.Errorf("to compile one costs %d, %v", cost, err)
	}
}

// L3: a match of 200,000 characters took 2.8 s, and findAll of 50,000 characters 24 s at a hundredth of what an expression may
// cost. Both are refused before anything is matched, wherever the expression stands.
func TestHostileTextsAreNotMatched(t *testing.T) {
	testrace.SkipAlone(t)
	const says = "limit match-steps"
	for expression, n := range map[string]int{
		"s.matches('(?:a?){1000}(?:a?){240}b')":  200_000,
		"matches(s, '(?:a?){1000}(?:a?){240}b')": 200_000,
		"s.matches(p)":                           200_000,
		"matches(s, p)":                          200_000,
		"s.find(p) == ''":                        200_000,
		"s.findAll(p, 1) == []":                  200_000,
		"s.findAll('a*b|a') == []":               50_000,
		"s.findAll('a*b|a', 40000) == []":        50_000,
		"s.findAll(p, 40000) == []":              50_000,
		"s.findAll(p) == []":                     50_000,
		"[s].all(x, x.findAll('a*b|a') == [])":   50_000,
	} {
		if _, _, err := evaluate(t, expression, strings.Repeat("a", n), "(?:a?){1000}(?:a?){240}b"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", expression, err)
		}
	}
	// What is short enough costs what it takes.
	if _, cost, err := evaluate(t, "s.findAll('a*b|a') == []", strings.Repeat("a", 2000), ""); err != nil || cost < 50_000 {
		t.Errorf("findAll in 2000 characters costs %d, %v", cost, err)
	}
	if _, _, err := evaluate(t, "[1,2,3,4,5,6,7,8,9].all(i, [1,2,3,4,5,6,7,8,9].all(j, s.findAll('a*b|a') != []))", strings.Repeat("a", 2000), ""); err == nil {
		t.Error("81 of them cost too little")
	}
	for expression, n := range map[string]int{
		"s.matches('^[a-z]+$')": 1_000_000, "s.matches(p)": 1_000_000, "matches(s, p)": 1_000_000, "s.find(p) == s": 1_000_000,
		"s.findAll('[a-z]+').size() == 1": 3000, "s.findAll('[a-z]+', 1).size() == 1": 1_000_000, "s.findAll(p, 1) == [s]": 1_000_000,
	} {
		if _, _, err := evaluate(t, expression, strings.Repeat("a", n), "^[a-z]+$"); err != nil {
			t.Errorf("%s with %d characters: %v", expression, n, err)
		}
	}
}

// What usual expressions mean and cost is upstream's.
func TestUsualExpressionsAreAsUpstreamHasThem(t *testing.T) {
	const name = `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	for expression, want := range map[string]any{
		"s.matches('" + name + "')": true, "s.matches(p)": true, "matches(s, p)": true, "s.find(p)": "web-1", "s.find('[0-9]')": "1",
		"s.findAll(p).size()": int64(1), "s.findAll('[a-z]', 2).size()": int64(2), "s.findAll(p, 0).size()": int64(0), "!s.matches(p + 'x')": true,
	} {
		if got, _, err := evaluate(t, expression, "web-1", name); err != nil || got.Value() != want {
			t.Errorf("%s: %v, %v", expression, got, err)
		}
	}
	if _, cost, err := evaluate(t, "s.matches('"+name+"')", "web-1", ""); err != nil || cost != 1+8 {
		t.Errorf("a call costs %d, %v", cost, err)
	}
	for _, p := range []any{1, "["} {
		if _, _, err := evaluate(t, "s.matches(p)", "x", p); err == nil || strings.Contains(err.Error(), "limit") {
			t.Errorf("%v is a pattern: %v", p, err)
		}
	}
	for expression, want := range map[string]string{
		"s.matches(1)": "'matches' applied to 'string.(int)'", "s.matches(s.size())": "'matches' applied to 'string.(int)'",
		"1.matches('a')": "'matches' applied to 'int.(string)'", "[s].find('a')": "'find' applied to 'list(string).(string)'",
		"matches(1, s)": "'matches' applied to '(int, string)'", "s.findAll(true)": "'findAll' applied to 'string.(bool)'",
	} {
		if _, issues := environmentOf(t).Compile(expression); issues.Err() == nil || !strings.Contains(issues.Err().Error(), "no matching overload for "+want) {
			t.Errorf("%s: %v", expression, issues.Err())
		}
	}
}

// sized says that all variables are short strings.
type sized struct{ *library.CostEstimator }

func (sized) EstimateSize(checker.AstNode) *checker.SizeEstimate {
	return &checker.SizeEstimate{Max: 63}
}

// Definitions are refused whose rules may cost much: the check of a pattern must not make that of one that is not a literal.
func TestTheEstimateOfACallKnowsTheSizeOfItsPattern(t *testing.T) {
	env := environmentOf(t)
	compiled, issues := env.Compile("s.matches(s)")
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	estimate, err := env.EstimateCost(compiled, sized{&library.CostEstimator{}})
	if err != nil || estimate.Max == math.MaxUint64 || estimate.Max > 200 {
		t.Errorf("the estimate is %v, %v", estimate, err)
	}
}
