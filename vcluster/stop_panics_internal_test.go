// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/vcluster/pki"
)

// S18: a panic while a control plane stops is an error of its stop. What comes after it is stopped all the same, so that
// the store may be used: by a snapshot, or by a next start.
func TestAPanicIsAFailedStopThatLeavesNothingBehind(t *testing.T) {
	ca, err := pki.OpenCA(t.TempDir(), "serving")
	if err != nil {
		t.Fatal(err)
	}
	config := Config{Name: "panics", Dir: t.TempDir(), Endpoint: "https://127.0.0.1:1", ServingCA: ca.PEM()}
	p, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	p.hooks.checks = append(p.hooks.checks, nil) // to be asked whether it has finished
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		if err := p.Stop(ctx); err == nil || !strings.Contains(err.Error(), "panic") {
			t.Errorf("a stop with a panic gives %v", err)
		}
	}
	again, err := Start(ctx, config)
	if err != nil {
		t.Fatalf("its store can't be used: %v", err)
	}
	if err := again.Stop(ctx); err != nil {
		t.Error(err)
	}
}
