// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
)

// tokenOf reads the one token that a pod's host pod mounts.
func (env *testEnv) tokenOf(ctx context.Context, namespace, pod string) (secret *corev1.Secret, token string, err error) {
	secret, err = env.host.CoreV1().Secrets(env.space.HostNamespace()).Get(ctx, env.space.TokenSecretName(namespace, pod), metav1.GetOptions{})
	if err != nil {
		return nil, "", err
	}
	if len(secret.Data) != 1 {
		return nil, "", fmt.Errorf("the secret has %d tokens", len(secret.Data))
	}
	for _, data := range secret.Data {
		token = string(data)
	}
	return secret, token, nil
}

// review asks the space whom a token proves.
func (env *testEnv) review(ctx context.Context, token string) (authenticationv1.TokenReviewStatus, error) {
	review, err := env.virtual.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.TokenReviewStatus{}, err
	}
	return review.Status, nil
}

// holds expects a token that proves to be the pod's service account's, and the pod's.
func (env *testEnv) holds(ctx context.Context, token string, pod *corev1.Pod) error {
	status, err := env.review(ctx, token)
	if err != nil {
		return err
	}
	if !status.Authenticated || status.User.Username != "system:serviceaccount:"+pod.Namespace+":"+pod.Spec.ServiceAccountName {
		return fmt.Errorf("the token proves %v", status)
	}
	if uid := status.User.Extra["authentication.kubernetes.io/pod-uid"]; len(uid) != 1 || types.UID(uid[0]) != pod.UID {
		return fmt.Errorf("the token is bound to pod %v, want %s", uid, pod.UID)
	}
	return nil
}

// S4: the tokens that pods mount are the space's, bound to their pod, replaced
// before they expire, and gone with the pod.
func TestTokensOfPodsAreReplacedBeforeTheyExpire(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "tokens")
	now := testingclock.NewFakePassiveClock(time.Now())
	env.clock = now
	env.begin(nil)
	s := newScenario(env.virtual, "")
	env.play([]step{
		{"make namespace", s.namespace(s.app)},
		{"make config map", made(env.virtual.CoreV1().ConfigMaps(s.app).Create, newConfigMap("config"))},
		{"make secret", made(env.virtual.CoreV1().Secrets(s.app).Create, newSecret("credentials"))},
		{"make pod", made(env.virtual.CoreV1().Pods(s.app).Create, newPod("one"))},
		{"come to rest", env.alike},
	})
	pod, err := env.virtual.CoreV1().Pods(s.app).Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret, first, err := env.tokenOf(t.Context(), s.app, "one")
	if err != nil {
		t.Fatal(err)
	}
	if err := env.holds(t.Context(), first, pod); err != nil {
		t.Error(err)
	}
	refresh, err := time.Parse(time.RFC3339, secret.Annotations["berth.dev/refresh-at"])
	if left := refresh.Sub(now.Now()); err != nil || left < 45*time.Minute || left > 50*time.Minute {
		t.Errorf("an hour's token is replaced in %s (%v), want four fifths of its life", left, err)
	}

	touch := func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/touched":"%d"}}}`, time.Now().UnixNano())
		_, err := env.virtual.CoreV1().Pods(s.app).Patch(ctx, "one", types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	// Looked at again before its time it stays. Whether it was looked at shows a
	// label that went down with the same look.
	label := func(ctx context.Context) error {
		_, err := env.virtual.CoreV1().Pods(s.app).Patch(ctx, "one", types.MergePatchType, []byte(`{"metadata":{"labels":{"looked":"at"}}}`), metav1.PatchOptions{})
		return err
	}
	now.SetTime(refresh.Add(-time.Minute))
	env.play([]step{{"label the pod", label}, {"see the label on the host", func(ctx context.Context) error {
		host, err := env.host.CoreV1().Pods(env.space.HostNamespace()).Get(ctx, env.space.HostName(s.app, "one", 253), metav1.GetOptions{})
		if err == nil && host.Labels["looked"] != "at" {
			err = errors.New("not there")
		}
		return err
	}}})
	if _, again, err := env.tokenOf(t.Context(), s.app, "one"); err != nil || again != first {
		t.Errorf("the token was replaced before its time (%v)", err)
	}

	now.SetTime(refresh.Add(time.Second))
	env.play([]step{{"touch the pod", touch}, {"see its token replaced", func(ctx context.Context) error {
		_, second, err := env.tokenOf(ctx, s.app, "one")
		if err != nil {
			return err
		}
		if second == first {
			return errors.New("it is the same")
		}
		return env.holds(ctx, second, pod)
	}}})
	env.play([]step{
		{"delete the pod", func(ctx context.Context) error {
			return env.virtual.CoreV1().Pods(s.app).Delete(ctx, "one", metav1.DeleteOptions{})
		}},
		{"see its token gone", func(ctx context.Context) error {
			secret, _, err := env.tokenOf(ctx, s.app, "one")
			return gone(secret, err)
		}},
		{"see it worthless", func(ctx context.Context) error { // what is proven is cached for ten seconds
			status, err := env.review(ctx, first)
			if err == nil && status.Authenticated {
				err = fmt.Errorf("the token outlives its pod: %v", status)
			}
			return err
		}},
		{"come to rest", env.alike},
	})
}

// A pod that has the name of one that is gone gets tokens of its own.
func TestAPodOfAUsedNameGetsItsOwnTokens(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "token-names")
	env.begin(nil)
	s := newScenario(env.virtual, "")
	pods := env.virtual.CoreV1().Pods(s.app)
	env.play([]step{
		{"make namespace", s.namespace(s.app)},
		{"make config map", made(env.virtual.CoreV1().ConfigMaps(s.app).Create, newConfigMap("config"))},
		{"make secret", made(env.virtual.CoreV1().Secrets(s.app).Create, newSecret("credentials"))},
	})
	var last string
	for range 3 {
		env.play([]step{{"make pod", made(pods.Create, newPod("same"))}, {"come to rest", env.alike}})
		env.play([]step{{"see its own token", func(ctx context.Context) error {
			pod, err := pods.Get(ctx, "same", metav1.GetOptions{})
			if err != nil {
				return err
			}
			_, token, err := env.tokenOf(ctx, s.app, "same")
			if err != nil {
				return err
			}
			if token == last {
				return errors.New("it is the last pod's")
			}
			last = token
			return env.holds(ctx, token, pod)
		}}})
		env.play([]step{
			{"delete it", func(ctx context.Context) error { return pods.Delete(ctx, "same", *noGrace()) }},
			{"see it gone", func(ctx context.Context) error { return gone(pods.Get(ctx, "same", metav1.GetOptions{})) }},
		})
	}
}

// A pod whose service account is deleted before its token is there waits, shows
// where it is, and gets its token with the account.
func TestAPodWaitsForItsServiceAccount(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "token-account")
	waiting, deleted := make(chan struct{}, 100), make(chan struct{})
	env.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		if c.to == toSpace && strings.HasSuffix(c.URL.Path, "/serviceaccounts/late/token") {
			waiting <- struct{}{}
			<-deleted
		}
		return send()
	})
	s := newScenario(env.virtual, "")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "late"}}
	pod := newPod("one")
	pod.Spec.ServiceAccountName = "late"
	accounts := env.virtual.CoreV1().ServiceAccounts(s.app)
	env.play([]step{
		{"make namespace", s.namespace(s.app)},
		{"make config map", made(env.virtual.CoreV1().ConfigMaps(s.app).Create, newConfigMap("config"))},
		{"make secret", made(env.virtual.CoreV1().Secrets(s.app).Create, newSecret("credentials"))},
		{"make account", made(accounts.Create, account)},
		{"make pod", made(env.virtual.CoreV1().Pods(s.app).Create, pod)},
	})
	<-waiting
	env.play([]step{{"delete account", func(ctx context.Context) error { return accounts.Delete(ctx, "late", metav1.DeleteOptions{}) }}})
	close(deleted)
	env.play([]step{
		{"see the pod on a node all the same", func(ctx context.Context) error {
			pod, err := env.virtual.CoreV1().Pods(s.app).Get(ctx, "one", metav1.GetOptions{})
			if err == nil && pod.Spec.NodeName == "" {
				err = errors.New("not bound")
			}
			return err
		}},
		{"make account again", made(accounts.Create, account)},
		{"come to rest", env.alike},
	})
}
