// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/translate"
)

// enforcedPoll is the interval at which [WaitEnforced] checks.
const enforcedPoll = 50 * time.Millisecond

// WaitEnforced waits until the host enforces [PodPolicy] and [AccountPolicy] for a space's account. A new policy takes
// effect after some moments; until then, the account could do everything that RBAC grants. account is a client that
// impersonates the account of the space, whose isolation objects must exist. WaitEnforced writes nothing. If ctx ends
// first, the error names the policy that is not in effect.
func WaitEnforced(ctx context.Context, account client.Client, space translate.Space) error {
	at := metav1.ObjectMeta{Namespace: space.HostNamespace(), Name: "berth-probe"} // a syncer never writes this, because it has no label
	for _, probe := range []client.Object{                                         // one for each policy
		&corev1.Pod{ObjectMeta: at, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}}},
		&corev1.ConfigMap{ObjectMeta: at},
	} {
		last := errors.New("it would let the space's account make anything")
		err := wait.PollUntilContextCancel(ctx, enforcedPoll, true, func(ctx context.Context) (bool, error) {
			err := account.Create(ctx, probe.DeepCopyObject().(client.Object), client.DryRunAll)
			if apierrors.IsForbidden(err) && strings.Contains(err.Error(), hostpolicy.NotOurs) {
				return true, nil
			}
			if err != nil && ctx.Err() == nil { // the error of another policy, or of missing rights, shows nothing about this policy
				last = err
			}
			return false, nil
		})
		if err != nil {
			return fmt.Errorf("the host does not enforce Berth's policy for spaces' accounts on a %T: %w", probe, last)
		}
	}
	return nil
}
