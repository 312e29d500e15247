// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
)

const (
	// annotationRefresh on a token secret is when its tokens are replaced, as a time in RFC 3339. It is before the
	// first of them expires.
	annotationRefresh = translate.Domain + "/refresh-at"
	// annotationTokenKey is the ID of the key that signed the tokens. They are replaced when the space has another key.
	annotationTokenKey = translate.Domain + "/token-key"
)

// tokensPerSecond is how many tokens a space's syncer requests in a second, after a burst of ten times as many. A pod
// may have as many tokens as items of volumes, and each must be signed.
const tokensPerSecond = 200

func newTokenPace() *rate.Limiter {
	return rate.NewLimiter(tokensPerSecond, engine.BurstSeconds*tokensPerSecond)
}

// tokenWrites are the token secrets, by name, that were written but are not yet in the watch. A pod's status may change
// several times before they are.
type tokenWrites struct {
	mu   sync.Mutex
	made map[string]tokenWrite
}

// tokenWrite is a token secret of a host pod.
type tokenWrite struct {
	of      types.UID
	version uint64
	refresh time.Time
}

// wrote records a write, and removes those that the watch has delivered, up to the version shown.
func (w *tokenWrites) wrote(name string, made tokenWrite, shown uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.made, func(_ string, m tokenWrite) bool { return m.version <= shown })
	if w.made == nil {
		w.made = map[string]tokenWrite{}
	}
	w.made[name] = made
}

// unseen returns when the secret of a host pod must be replaced, if it was written after the version shown of the
// watch; ok is false if it was not.
func (w *tokenWrites) unseen(name string, of types.UID, shown uint64) (refresh time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	made, ok := w.made[name]
	return made.refresh, ok && made.of == of && made.version > shown
}

// podTokens creates and renews the secret with the service account tokens that v's volumes project. The tokens are for
// the space's API, bound to v, and short-lived. It returns when they must be replaced. The host deletes the secret with
// the pod.
func (s *Syncer) podTokens(ctx context.Context, v, host *corev1.Pod) (time.Duration, error) {
	requests := pod.TokenRequests(v)
	if len(requests) == 0 || v.Status.Phase == corev1.PodSucceeded || v.Status.Phase == corev1.PodFailed {
		return 0, nil
	}
	if s.Sync.On(resources.Nodes) && v.Spec.NodeName == "" {
		return 0, nil // the token must name the virtual node, so it has to wait for the binding, which triggers another sync
	}
	name := s.Space.TokenSecretName(v.Namespace, v.Name)
	shown := s.Host.Routers[resources.Secrets].Delivered.Load() // must be read before the secret
	if at, ok := s.tokens.unseen(name, host.UID, shown); ok && at.After(s.Clock.Now()) {
		return at.Sub(s.Clock.Now()), nil
	}
	have, exists := hostcache.Get[*corev1.Secret](s.Host, resources.Secrets, s.Space.HostNamespace(), name)
	if exists && metav1.IsControlledBy(have, host) && (s.tokenKey == "" || have.Annotations[annotationTokenKey] == s.tokenKey) {
		if at, err := time.Parse(time.RFC3339, have.Annotations[annotationRefresh]); err == nil {
			if left := at.Sub(s.Clock.Now()); left > 0 {
				return left, nil
			}
		}
	}
	data, refresh, err := s.requestTokens(ctx, v, requests)
	if err != nil {
		return 0, err
	}
	owner := metav1.NewControllerRef(host, corev1.SchemeGroupVersion.WithKind("Pod"))
	owner.BlockOwnerDeletion = nil // where this is enforced, setting it needs a right on the pod's finalizers
	want := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: s.Space.HostNamespace(),
			Labels: map[string]string{
				translate.LabelSpace: s.Space.Name, translate.LabelNamespace: v.Namespace, translate.LabelManagedBy: translate.ManagedBy,
			},
			Annotations:     map[string]string{annotationRefresh: s.Clock.Now().Add(refresh).UTC().Format(time.RFC3339), annotationTokenKey: s.tokenKey},
			OwnerReferences: []metav1.OwnerReference{*owner},
		},
		Data: data,
	}
	// A tenant can't use this name, so an existing secret is Berth's, for an earlier pod of the same name. It is
	// deleted with that pod.
	if exists {
		err = s.HostAPI.Update(ctx, want)
	} else {
		err = engine.CreateOnHost(ctx, s.HostAPI, want)
	}
	switch { // the watch is behind
	case exists && apierrors.IsNotFound(err):
		err = engine.CreateOnHost(ctx, s.HostAPI, want)
	case !exists && apierrors.IsAlreadyExists(err):
		err = s.HostAPI.Update(ctx, want)
	}
	if err != nil {
		return 0, err
	}
	s.tokens.wrote(name, tokenWrite{host.UID, hostcache.Version(want.ResourceVersion), s.Clock.Now().Add(refresh)}, shown)
	return refresh, nil
}

// tokensOf returns the key of the pod of a token secret, so that a secret that somebody deletes is created again.
func (s *Syncer) tokensOf(secret *corev1.Secret) (key engine.Key, ok bool) {
	owner := metav1.GetControllerOf(secret)
	if owner == nil || owner.Kind != "Pod" {
		return key, false
	}
	host, ok := hostcache.Get[*corev1.Pod](s.Host, resources.Pods, secret.Namespace, owner.Name)
	if !ok || host.UID != owner.UID {
		return key, false
	}
	return engine.KeyOf(resources.Pods, host)
}

func (s *Syncer) requestTokens(ctx context.Context, v *corev1.Pod, requests []pod.TokenRequest) (data map[string][]byte, refresh time.Duration, err error) {
	// The tokens of a secret that must wait for the space's byte budget are requested again when it is its turn.
	if err := s.tokenPace.WaitN(ctx, min(len(requests), s.tokenPace.Burst())); err != nil {
		return nil, 0, fmt.Errorf("wait to request tokens: %w", err)
	}
	data = map[string][]byte{}
	account := v.Spec.ServiceAccountName
	for _, r := range requests {
		ask := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: r.ExpirationSeconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: v.Name, UID: v.UID},
		}}
		if r.Audience != "" {
			ask.Spec.Audiences = []string{r.Audience}
		}
		of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: account}}
		if err := s.VirtualAPI.SubResource("token").Create(ctx, of, ask); err != nil {
			return nil, 0, fmt.Errorf("request a token of service account %s/%s: %w", v.Namespace, account, err)
		}
		data[r.Key] = []byte(ask.Status.Token)
		// Tokens are replaced after four fifths of their life, as kubelets do.
		if life := ask.Status.ExpirationTimestamp.Sub(s.Clock.Now()) * 4 / 5; refresh == 0 || life < refresh {
			refresh = life
		}
	}
	return data, max(refresh, time.Minute), nil
}
