// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// heldBody is the body of a watch that stops while it is held.
type heldBody struct {
	io.ReadCloser
	held *atomic.Pointer[chan struct{}]
}

func (b heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if until := b.held.Load(); until != nil {
		<-*until
	}
	return n, err
}

// S4: a pod's tokens are written once, however often the pod changes before the
// host's watch shows the secret.
func TestTokensAreWrittenOnceThoughTheWatchLags(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "tokens-once")
	var held atomic.Pointer[chan struct{}]
	var writes atomic.Int64
	secret := env.space.TokenSecretName("default", "one")
	env.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		base := path.Base(c.URL.Path)
		if c.to == toHost && base == secret && c.writes() {
			writes.Add(1) // a replacement
		}
		resp, err := send()
		if err == nil && c.to == toHost && c.watches() && base == "secrets" {
			resp.Body = heldBody{resp.Body, &held}
		}
		return resp, err
	})
	released := make(chan struct{})
	release := func() {
		if held.Swap(nil) != nil {
			close(released)
		}
	}
	defer release() // the syncer can't stop while its watch is held
	env.play([]step{
		{"make config map", made(env.virtual.CoreV1().ConfigMaps("default").Create, newConfigMap("config"))},
		{"make secret", made(env.virtual.CoreV1().Secrets("default").Create, newSecret("credentials"))},
		{"come to rest", env.alike},
	})
	held.Store(&released)
	label := func(value string) step {
		return step{"label the pod", func(ctx context.Context) error {
			_, err := env.virtual.CoreV1().Pods("default").Patch(ctx, "one", types.MergePatchType, []byte(`{"metadata":{"labels":{"looked":"`+value+`"}}}`), metav1.PatchOptions{})
			return err
		}}
	}
	labeled := func(value string) step {
		return step{"see the label on the host", func(ctx context.Context) error {
			host, err := env.host.CoreV1().Pods(env.space.HostNamespace()).Get(ctx, env.hostName("one"), metav1.GetOptions{})
			if err == nil && host.Labels["looked"] != value {
				err = errors.New("not there")
			}
			return err
		}}
	}
	var first *corev1.Secret
	env.play([]step{
		{"make pod", made(env.virtual.CoreV1().Pods("default").Create, newPod("one"))},
		{"see its token", func(ctx context.Context) (err error) {
			first, _, err = env.tokenOf(ctx, "default", "one")
			return err
		}},
		// What the second label takes to the host comes after all that the first led to.
		label("once"), labeled("once"), label("twice"), labeled("twice"),
	})
	last, _, err := env.tokenOf(t.Context(), "default", "one")
	if err != nil {
		t.Fatal(err)
	}
	if n := writes.Load(); n > 0 || last.ResourceVersion != first.ResourceVersion {
		t.Errorf("the secret was replaced %d times before the watch showed it", n)
	}
	release()
	env.play([]step{{"come to rest", env.alike}})
}
