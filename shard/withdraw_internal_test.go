// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/berth-dev/berth/syncer/declaration"
)

// C6: many Services that lead out of a space are one question, until it was answered with no error; then none is left for this start.
func TestASpaceWithdrawsOnce(t *testing.T) {
	t.Parallel()
	const services = 50
	begun, answer := make(chan []string, services), make(chan error)
	s := &Shard{config: Config{Withdraw: func(_ context.Context, space string, runs []string) error {
		if space != "solar" {
			t.Errorf("the space is %q", space)
		}
		begun <- runs
		return <-answer
	}}}
	withdraw := s.withdrawOnce("solar", []*declaration.Declaration{{Name: "notes.example.com"}})
	ask := func(answers ...error) (results []error) {
		t.Helper()
		done := make(chan error, services)
		for range services {
			go func() { done <- withdraw(t.Context()) }()
		}
		for range services {
			select { // those that come after the answer ask again
			case runs := <-begun:
				if !slices.Equal(runs, []string{"notes.example.com"}) {
					t.Errorf("the space runs with %q", runs)
				}
				answer <- answers[0]
				results = append(results, <-done)
			case err := <-done:
				results = append(results, err)
			}
		}
		return results
	}
	failed := errors.New("the host doesn't answer")
	for _, err := range ask(failed) {
		if !errors.Is(err, failed) {
			t.Errorf("a Service may lead out: %v", err)
		}
	}
	for _, err := range ask(nil) {
		if err != nil {
			t.Errorf("a Service may not lead out: %v", err)
		}
	}
	if err := withdraw(t.Context()); err != nil || len(begun) > 0 {
		t.Errorf("it is asked again: %v", err)
	}
}
