// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

// countedWithin is how long [Apply] waits for the host to count a resource that was added to the quota. Its controller
// takes milliseconds.
const countedWithin = 30 * time.Second

// alreadyCounted returns the space with only those resources that the quota on the host counts already. The admission
// policies allow a resource as soon as the namespace names it, but a quota is enforced once its status names it. So the
// namespace of the space must not name a resource earlier, and must not name it anymore before the quota loses it.
func alreadyCounted(ctx context.Context, host client.Client, space translate.Space) (translate.Space, error) {
	if len(space.Settings.Counted) == 0 {
		return space, nil
	}
	missing, err := uncounted(ctx, host, space)
	if err != nil {
		return space, err
	}
	space.Settings.Counted = slices.DeleteFunc(slices.Clone(space.Settings.Counted), func(name corev1.ResourceName) bool { return slices.Contains(missing, name) })
	return space, nil
}

// awaitCounted waits until the host counts all of a space's resources.
func awaitCounted(ctx context.Context, host client.Client, space translate.Space) error {
	var missing []corev1.ResourceName
	var failure error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, countedWithin, true, func(ctx context.Context) (bool, error) {
		missing, failure = uncounted(ctx, host, space)
		return failure == nil && len(missing) == 0, nil
	})
	if err != nil && failure != nil {
		return failure
	}
	if err != nil {
		return fmt.Errorf("wait until the host counts %s for the quota of space %s: %w; check the status of the ResourceQuota %s in namespace %s, which the host's controller manager writes",
			missing, space.Name, err, objectName, space.HostNamespace())
	}
	return nil
}

// uncounted returns the resources of a space that the quota on the host doesn't count yet, or will soon count no longer: the status may be
// behind the spec.
func uncounted(ctx context.Context, host client.Client, space translate.Space) (missing []corev1.ResourceName, err error) {
	quota := &corev1.ResourceQuota{}
	if err := host.Get(ctx, QuotaKey(space), quota); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read the quota of space %s: %w", space.Name, err)
	}
	counted, wanted := translate.CountedBy(quota.Status.Hard), translate.CountedBy(quota.Spec.Hard)
	for _, name := range space.Settings.Counted {
		if !slices.Contains(counted, name) || !slices.Contains(wanted, name) {
			missing = append(missing, name)
		}
	}
	return missing, nil
}
