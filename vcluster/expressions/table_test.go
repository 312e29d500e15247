// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiserver/pkg/cel/environment"
)

// unbounded are functions that are not in the table.
func unbounded() []string {
	return strings.Fields(`
	!_ -_ _%_ _&&_ _*_ _-_ _/_ _?_:_ _||_ @not_strictly_false __not_strictly_false__ dyn type
	_?._ _[?_] _[_] first last hasValue or orValue value optional.none optional.of optional.ofNonZeroValue
	in _in_
	@bounded_pattern @bounded_text matches _+_ cel.@mapInsert
	contains startsWith endsWith lowerAscii upperAscii substring trim strings.quote validate
	cidr ip ip.isCanonical isCIDR isIP isURL url semver isSemver fieldSelector labelSelector
	slice reverse
	add sub sign asApproximateFloat asInteger isInteger major minor patch
	containsCIDR containsIP family prefixLength masked isGlobalUnicast isLinkLocalMulticast isLinkLocalUnicast isLoopback isUnspecified
	getDate getDayOfMonth getDayOfWeek getDayOfYear getFullYear getHours getMilliseconds getMinutes getMonth getSeconds
	allowed check error errored group name namespace path reason resource serviceAccount subresource
	format.byte format.date format.datetime format.dns1035Label format.dns1035LabelPrefix format.dns1123Label format.dns1123LabelPrefix
	format.dns1123Subdomain format.dns1123SubdomainPrefix format.labelValue format.qualifiedName format.uri format.uuid
`)
}

func environmentWithAll(t *testing.T) *cel.Env {
	t.Helper()
	env, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).NewExpressionsEnv().Extend()
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// L3: if a release of Kubernetes has another function, or another name for one, somebody has to look whether its calls cost what they
// handle. Above are, a line each: those whose arguments are small, or that look up, or that nobody can call any more; those that are
// bounded elsewhere in this package; those that upstream counts by the length of texts and lists; and those of values that are small.
func TestEachFunctionIsBoundedOrKnownToCostWhatItHandles(t *testing.T) {
	env, table, others := environmentWithAll(t), boundedCalls(), unbounded()
	for name := range env.Functions() {
		if _, ok := table[name]; !ok && !slices.Contains(others, name) {
			t.Errorf("%s is new: does a call cost what it handles?", name)
		}
	}
	for name := range table {
		if _, ok := env.Functions()[name]; !ok {
			t.Errorf("the function %s is bounded, and upstream has it no more", name)
		}
	}
	known := map[string]bool{}
	for name, f := range env.Functions() {
		known[name] = true
		for _, o := range f.OverloadDecls() {
			known[o.ID()] = true
		}
	}
	for _, overload := range []string{
		findString, findAllString, findAllStringIn, overloads.Matches, overloads.MatchesString, overloads.Equals, overloads.NotEquals,
		mapInsertKeyValue, mapInsertMap, boundedPatternOverload, boundedTextOverload,
	} {
		if !known[overload] {
			t.Errorf("the overload %s is counted, and upstream has it no more", overload)
		}
	}
}

// L3: a function whose overload nothing is called for would go without its bound.
func TestOverloadsThatAreNotKnownAreNoEnvironment(t *testing.T) {
	same := cel.UnaryBinding(func(v ref.Val) ref.Val { return v })
	env, err := cel.NewCustomEnv(cel.Function("sort",
		cel.MemberOverload("list_sort", []*cel.Type{cel.ListType(cel.IntType)}, cel.ListType(cel.IntType), same),
		cel.MemberOverload("list_sort_texts", []*cel.Type{cel.ListType(cel.StringType)}, cel.ListType(cel.StringType)),
	))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := boundCalls(env); err == nil || !strings.Contains(err.Error(), "list_sort_texts") {
		t.Errorf("bound the calls: %v", err)
	}
	if by, err := bindings(environmentWithAll(t).Functions()["indexOf"]); err != nil || by["list_a_index_of_int"] == nil || by["indexOf"] == nil {
		t.Errorf("what is called for indexOf: %v, %v", by, err)
	}
}
