// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/onsi/ginkgo/v2/types"
)

// results are what became of each spec that a run chose, by full name.
type results struct {
	began                   time.Time
	took                    time.Duration
	passed, failed, skipped map[string]bool
	// broken says what went wrong beside the specs, so that not all of them ran.
	broken []string
}

// readReport reads ginkgo's JSON report of a run.
func readReport(file string) (results, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return results{}, fmt.Errorf("read report: %w", err)
	}
	var reports []types.Report
	if err := json.Unmarshal(content, &reports); err != nil {
		return results{}, fmt.Errorf("read report: %s: %w", file, err)
	}
	if len(reports) != 1 {
		return results{}, fmt.Errorf("read report: %s tells of %d suites, not of one", file, len(reports))
	}
	return resultsOf(reports[0]), nil
}

func resultsOf(report types.Report) results {
	r := results{
		began: report.StartTime, took: report.RunTime,
		passed: map[string]bool{}, failed: map[string]bool{}, skipped: map[string]bool{},
		broken: report.SpecialSuiteFailureReasons,
	}
	for _, spec := range report.SpecReports {
		switch {
		case spec.LeafNodeType != types.NodeTypeIt:
			if spec.State.Is(types.SpecStateFailureStates) {
				r.broken = append(r.broken, fmt.Sprintf("%s: %s", spec.LeafNodeType, spec.FailureMessage()))
			}
		case spec.State == types.SpecStatePassed:
			r.passed[spec.FullText()] = true
		case spec.State.Is(types.SpecStateFailureStates):
			r.failed[spec.FullText()] = true
		case spec.FailureMessage() != "":
			// It skipped itself. What the focus left out says nothing.
			r.skipped[spec.FullText()] = true
		}
	}
	return r
}

// verdict is a run beside what was expected of it.
type verdict struct {
	results
	reasons []reason
	// unexpected failed without a reason, unproven skipped themselves without one, and mended have one and passed: each
	// makes the run a failure.
	unexpected, unproven, mended []string
}

func judge(r results, reasons []reason) verdict {
	v := verdict{results: r, reasons: reasons}
	named := map[string]bool{}
	for _, reason := range reasons {
		for _, spec := range reason.Specs {
			named[spec] = true
			if r.passed[spec] && !reason.Flaky {
				v.mended = append(v.mended, spec)
			}
		}
	}
	for spec := range r.failed {
		if !named[spec] {
			v.unexpected = append(v.unexpected, spec)
		}
	}
	// A spec that skips itself proves as little as one that fails.
	for spec := range r.skipped {
		if !named[spec] {
			v.unproven = append(v.unproven, spec)
		}
	}
	slices.Sort(v.unexpected)
	slices.Sort(v.unproven)
	return v
}

func (v verdict) asExpected() bool {
	return len(v.unexpected) == 0 && len(v.unproven) == 0 && len(v.mended) == 0 && len(v.broken) == 0 && len(v.passed) > 0
}

func (v verdict) print(out io.Writer) {
	for _, list := range []struct {
		title string
		specs []string
	}{
		{"The suite itself", v.broken},
		{"Failed, and nothing says why", v.unexpected},
		{"Skipped themselves, and nothing says why", v.unproven},
		{"Passed, but expected to fail", v.mended},
	} {
		if len(list.specs) == 0 {
			continue
		}
		fmt.Fprintf(out, "%s:\n", list.title)
		for _, spec := range list.specs {
			fmt.Fprintf(out, "- %s\n", spec)
		}
	}
	expected := ""
	if len(v.failed)+len(v.skipped) > 0 && v.asExpected() {
		expected = ", each for a reason in docs/contributing/conformance.md"
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped themselves%s, in %s\n",
		len(v.passed), len(v.failed), len(v.skipped), expected, v.took.Round(time.Second))
}
