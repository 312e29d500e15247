// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/translate/pod"
)

// issuer is a space's API that issues tokens at once.
type issuer struct{ client.Client }

func (issuer) SubResource(string) client.SubResourceClient { return tokens{} }

type tokens struct{ client.SubResourceClient }

func (tokens) Create(_ context.Context, _, request client.Object, _ ...client.SubResourceCreateOption) error {
	if r, ok := request.(*authenticationv1.TokenRequest); ok {
		r.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(time.Hour))
	}
	return nil
}

// S8: a pod may ask for hundreds of tokens, and while the space may write no more to the host, again with each try.
func TestHostileTokensAreRequestedAtARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Syncer{Engine: &engine.Engine{VirtualAPI: issuer{}, Clock: clock.RealClock{}}, tokenPace: newTokenPace()}
		requests, begun := make([]pod.TokenRequest, 500), time.Now()
		for range 20 {
			if _, _, err := s.requestTokens(t.Context(), &corev1.Pod{}, requests); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took < 40*time.Second || took > 41*time.Second {
			t.Errorf("10,000 tokens took %s, want those of ten seconds at once and the rest at %d a second", took, tokensPerSecond)
		}
		if _, _, err := s.requestTokens(t.Context(), &corev1.Pod{}, make([]pod.TokenRequest, 5000)); err != nil {
			t.Errorf("a pod that is older than the bound of its volumes has no tokens: %v", err)
		}
	})
}
