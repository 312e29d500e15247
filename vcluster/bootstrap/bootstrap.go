// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	schedulingv1 "k8s.io/kubernetes/pkg/apis/scheduling/v1"

	"github.com/berth-dev/berth/internal/safego"
)

const (
	// bootstrapWriters bounds the writes in flight. The store commits those
	// that come together in one go.
	bootstrapWriters = 8
	// bootstrapTimeout is how long a start waits for the bootstrap objects. A
	// tenant can make it fail for good, with an admission webhook of its own,
	// and must still be able to come and remove that.
	bootstrapTimeout = 10 * time.Second

	intactPoll = 10 * time.Millisecond
)

// Writer makes the objects that upstream gives every cluster: RBAC's
// default roles and bindings, and the system's priority classes; and what gives
// the space's admins their rights.
type Writer struct {
	logger klog.Logger
	done   chan struct{}
}

// New returns a writer that has not run.
func New(logger klog.Logger) *Writer {
	return &Writer{logger: logger, done: make(chan struct{})}
}

// Run tries until it succeeds or ctx ends.
func (b *Writer) Run(ctx context.Context, client kubernetes.Interface, admins *adminAccess) {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 10, Cap: time.Minute}
	_ = backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		if err := errors.Join(ensureBootstrap(ctx, client), admins.ensure(ctx)); err != nil {
			if ctx.Err() == nil {
				b.logger.Error(err, "Could not create the bootstrap objects; Berth retries")
			}
			return false, nil
		}
		// A request that came before the authorizer has seen it would be refused.
		_ = wait.PollUntilContextCancel(ctx, intactPoll, true, func(context.Context) (bool, error) { return admins.intact(), nil })
		close(b.done)
		return true, nil
	})
}

// Wait returns when run has succeeded, ctx has ended, or bootstrapTimeout
// has passed.
func (b *Writer) Wait(ctx context.Context) {
	timer := time.NewTimer(bootstrapTimeout)
	defer timer.Stop()
	select {
	case <-b.done:
	case <-ctx.Done():
	case <-timer.C:
		b.logger.Info("Space serves before all bootstrap objects exist; Berth still creates them", "timeout", bootstrapTimeout)
	}
}

func ensureBootstrap(ctx context.Context, client kubernetes.Interface) error {
	writes, err := rbacWrites(ctx, client)
	if err != nil {
		return err
	}
	writes = append(writes, func() error { return ensurePriorityClasses(ctx, client) })

	errs := make([]error, len(writes))
	var group errgroup.Group
	group.SetLimit(bootstrapWriters)
	for i, write := range writes {
		group.Go(func() error {
			if errs[i] = ctx.Err(); errs[i] == nil {
				errs[i] = safego.Call("write a bootstrap object", write)
			}
			return nil // one that fails must not keep back the others
		})
	}
	_ = group.Wait()
	return errors.Join(errs...)
}

func ensurePriorityClasses(ctx context.Context, client kubernetes.Interface) error {
	classes := client.SchedulingV1().PriorityClasses()
	for _, class := range schedulingv1.SystemPriorityClasses() {
		_, err := classes.Get(ctx, class.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = classes.Create(ctx, class, metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("ensure priority class %s: %w", class.Name, err)
		}
	}
	return nil
}
