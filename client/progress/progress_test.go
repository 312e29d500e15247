// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package progress_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/progress"
)

// step is what one look finds.
type step struct {
	done    bool
	message string
	err     error
}

// await looks at steps, the last one again and again, and returns the error and what is printed.
func await(t *testing.T, timeout time.Duration, steps ...step) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), timeout, errors.New("not done in time"))
	defer cancel()
	var out strings.Builder
	at := 0
	err := progress.Await(ctx, &out, "space/a", func(context.Context) (bool, string, error) {
		s := steps[min(at, len(steps)-1)]
		at++
		return s.done, s.message, s.err
	})
	return out.String(), err
}

func TestEachMessageIsPrintedOnce(t *testing.T) {
	out, err := await(t, time.Minute, step{message: "one"}, step{message: "one"}, step{message: "two"}, step{done: true})
	if err != nil || out != "space/a: one\nspace/a: two\n" {
		t.Errorf("got %q (%v)", out, err)
	}
}

// What passes is waited for, and what stays is an error at once.
func TestOnlyErrorsThatPassAreLookedOver(t *testing.T) {
	spaces := v1alpha1.Resource("spaces")
	for name, tc := range map[string]struct {
		err    error
		passes bool
	}{
		"the connection":  {errors.New("connection refused"), true},
		"an overload":     {apierrors.NewTooManyRequests("busy", 1), true},
		"a failure":       {apierrors.NewInternalError(errors.New("broken")), true},
		"no rights":       {apierrors.NewForbidden(spaces, "a", errors.New("no")), false},
		"it is not there": {fmt.Errorf("look: %w", apierrors.NewNotFound(spaces, "a")), false},
		"it can't":        {&progress.NotReadyError{Name: "space/a", Reason: v1alpha1.ReasonPaused}, false},
	} {
		_, err := await(t, time.Minute, step{err: tc.err}, step{done: true})
		if tc.passes && err != nil || !tc.passes && !errors.Is(err, tc.err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestATimeoutSaysWhatWasWaitedFor(t *testing.T) {
	_, err := await(t, 50*time.Millisecond, step{message: "two pods end"})
	if err == nil || err.Error() != "wait for space/a: not done in time (two pods end)" {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = progress.Await(ctx, &strings.Builder{}, "space/a", func(context.Context) (bool, string, error) { return false, "", nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupt ends with %v", err)
	}
}
