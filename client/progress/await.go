// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// interval is the time between two looks. A look is one small request, and needs no right but get.
const interval = 200 * time.Millisecond

// Look returns whether all is done, and if not, what is waited for.
type Look func(ctx context.Context) (done bool, message string, err error)

// Await looks until all is done. It prints each new message to progress, after the name. If the context ends by a timeout,
// the error has the context's cause and the last message. Errors of the connection and of a server that is overloaded or
// restarts are looked over until then.
func Await(ctx context.Context, progress io.Writer, name string, look Look) error {
	var last string
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		done, message, err := look(ctx)
		if err != nil {
			if ctx.Err() != nil || !passes(err) {
				return false, err
			}
			message = err.Error()
		}
		if message != last && message != "" {
			last = message
			fmt.Fprintf(progress, "%s: %s\n", name, message)
		}
		return done, nil
	})
	if err == nil || ctx.Err() == nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		if last == "" {
			last = "no answer"
		}
		return fmt.Errorf("wait for %s: %w (%s)", name, cause, last)
	}
	return ctx.Err()
}

// passes reports whether an error may be gone at the next look.
func passes(err error) bool {
	if _, stays := errors.AsType[*NotReadyError](err); stays {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
}
