// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
)

// warmExpressions fills what kwok's expression library (easycel v0.6.0) keeps of
// Go types for the process. It writes that without a lock when a stage is first
// matched, which kwok's controllers would do at once, and the process would end.
var warmExpressions = sync.OnceValue(func() error {
	nodeStages, err := nodeLifecycle()
	if err != nil {
		return err
	}
	podStages, err := podLifecycle()
	if err != nil {
		return err
	}
	_, nodeErr := nodeStages.Match(context.Background(), &lifecycle.Event{Data: &corev1.Node{}})
	_, podErr := podStages.Match(context.Background(), &lifecycle.Event{Data: &corev1.Pod{}})
	if err := errors.Join(nodeErr, podErr); err != nil {
		return fmt.Errorf("match kwok's stages: %w", err)
	}
	return nil
})
