// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
)

func report(states map[string]types.SpecState) types.Report {
	var r types.Report
	for name, state := range states {
		spec := types.SpecReport{LeafNodeType: types.NodeTypeIt, ContainerHierarchyTexts: []string{"[sig-x]"}, LeafNodeText: name, State: state}
		if state == types.SpecStateSkipped && name == "skips" {
			spec.Failure.Message = "not here"
		}
		r.SpecReports = append(r.SpecReports, spec)
	}
	return r
}

func TestARunIsAsExpectedIfEachFailureHasAReasonAndNothingElse(t *testing.T) {
	known := []reason{{Kind: forbidden, Rule: "N1", Why: "nodes", Specs: []string{"[sig-x] lists nodes"}}}
	flaky := []reason{{Kind: gap, Why: "races", Specs: []string{"[sig-x] lists nodes"}, Flaky: true}}
	skips := []reason{{Kind: environment, Why: "one node", Specs: []string{"[sig-x] skips"}}}
	for name, c := range map[string]struct {
		states  map[string]types.SpecState
		reasons []reason
		want    bool
	}{
		"all passed":                                {map[string]types.SpecState{"a": types.SpecStatePassed}, nil, true},
		"nothing ran":                               {map[string]types.SpecState{"a": types.SpecStateSkipped}, nil, false},
		"a failure with a reason":                   {map[string]types.SpecState{"a": types.SpecStatePassed, "lists nodes": types.SpecStateFailed}, known, true},
		"a failure without":                         {map[string]types.SpecState{"a": types.SpecStatePassed, "b": types.SpecStateFailed}, known, false},
		"a panic without":                           {map[string]types.SpecState{"a": types.SpecStatePassed, "b": types.SpecStatePanicked}, known, false},
		"a timeout without":                         {map[string]types.SpecState{"a": types.SpecStatePassed, "b": types.SpecStateTimedout}, known, false},
		"one that was to fail passes":               {map[string]types.SpecState{"lists nodes": types.SpecStatePassed}, known, false},
		"one that fails at times passes":            {map[string]types.SpecState{"lists nodes": types.SpecStatePassed}, flaky, true},
		"one that was to fail is not of this focus": {map[string]types.SpecState{"a": types.SpecStatePassed, "lists nodes": types.SpecStateSkipped}, known, true},
		"one skips itself without a reason":         {map[string]types.SpecState{"a": types.SpecStatePassed, "skips": types.SpecStateSkipped}, nil, false},
		"one skips itself with a reason":            {map[string]types.SpecState{"a": types.SpecStatePassed, "skips": types.SpecStateSkipped}, skips, true},
	} {
		t.Run(name, func(t *testing.T) {
			v := judge(resultsOf(report(c.states)), c.reasons)
			if got := v.asExpected(); got != c.want {
				t.Errorf("as expected: %v, want %v: unexpected %q, mended %q", got, c.want, v.unexpected, v.mended)
			}
		})
	}
}

func TestAFailureOfTheSuiteItselfIsUnexpected(t *testing.T) {
	r := report(map[string]types.SpecState{"a": types.SpecStatePassed})
	r.SpecReports = append(r.SpecReports, types.SpecReport{LeafNodeType: types.NodeTypeSynchronizedBeforeSuite, State: types.SpecStateFailed})
	if judge(resultsOf(r), nil).asExpected() {
		t.Error("a run whose preparation failed is as expected")
	}
}

func TestExpectedFailuresAreCheckedWhenRead(t *testing.T) {
	if _, err := readExpected("expected.yaml"); err != nil {
		t.Error(err)
	}
	for name, content := range map[string]string{
		"an unknown kind":          "- {kind: later, why: w, specs: [a]}",
		"forbidden without a rule": "- {kind: forbidden, why: w, specs: [a]}",
		"a rule that forbids not":  "- {kind: gap, rule: N1, why: w, specs: [a]}",
		"no reason":                "- {kind: gap, specs: [a]}",
		"no specs":                 "- {kind: gap, why: w}",
		"two reasons for one spec": "- {kind: gap, why: w, specs: [a]}\n- {kind: gap, why: v, specs: [a]}",
		"an unknown field":         "- {kind: gap, why: w, spec: [a]}",
	} {
		file := filepath.Join(t.TempDir(), "expected.yaml")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readExpected(file); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestResultsReplaceThoseOfTheRunBefore(t *testing.T) {
	v := judge(resultsOf(report(map[string]types.SpecState{"a": types.SpecStatePassed, "lists nodes": types.SpecStateFailed})),
		[]reason{{Kind: forbidden, Rule: "N1", Why: "Nodes are hidden.", Specs: []string{"[sig-x] lists nodes", "[sig-x] of another focus"}}})
	file := filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(file, []byte("before\n"+begin+"old\n"+end+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := v.writeInto(file); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := string(content)
	for _, want := range []string{"before\n", "after\n", "| passed | 1 |", "forbids tenants what they do | 1 |", "**Nodes are hidden.** (N1)\n\n- `[sig-x] lists nodes`\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
	for _, not := range []string{"old", "of another focus"} {
		if strings.Contains(got, not) {
			t.Errorf("there is %q in\n%s", not, got)
		}
	}
	if strings.Count(got, begin) != 1 {
		t.Errorf("results are there twice:\n%s", got)
	}
}
