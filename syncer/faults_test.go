// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// outage is how long a host is out of order in these tests.
const outage = 4 * time.Second

// answer is a status as an API server, or what stands before it, gives it.
func answer(code int, reason metav1.StatusReason) func(call) (*http.Response, error) {
	return func(c call) (*http.Response, error) {
		body, err := json.Marshal(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "out of order",
		})
		header := http.Header{"Content-Type": []string{"application/json"}}
		if code == http.StatusTooManyRequests {
			header.Set("Retry-After", "1")
		}
		return &http.Response{
			StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: header, Body: io.NopCloser(strings.NewReader(string(body))), Request: c.Request,
		}, err
	}
}

// S7: a host that is out of order is asked again, ever more rarely, and once it
// is well everything is as it should be.
func TestSyncerOutlivesAHostThatIsOutOfOrder(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		answer func(call) (*http.Response, error)
	}{
		"500": {"its store fails", answer(http.StatusInternalServerError, metav1.StatusReasonInternalError)},
		"503": {"it restarts", answer(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)},
		"429": {"it has too much to do", answer(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)},
		"403": {"its authorizer has lost its roles", answer(http.StatusForbidden, metav1.StatusReasonForbidden)},
		"409": {"something that it writes along with it, such as a quota, is contended", answer(http.StatusConflict, metav1.StatusReasonConflict)},
		"404": {"the namespace is not there for now", answer(http.StatusNotFound, metav1.StatusReasonNotFound)},
		"timeout": {"it hangs", func(c call) (*http.Response, error) {
			select {
			case <-c.Context().Done():
			case <-time.After(time.Second):
			}
			return nil, os.ErrDeadlineExceeded
		}},
		"reset": {"it cuts connections", func(call) (*http.Response, error) { return nil, errors.New("connection reset by peer") }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newEnv(t, "ill-"+name)
			var ill atomic.Bool
			var tries atomic.Int64
			env.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
				if !ill.Load() || c.watches() {
					return send()
				}
				tries.Add(1)
				if c.to != toHost || !c.writes() {
					return send()
				}
				return test.answer(c)
			})
			s := newScenario(env.virtual, "")
			rest := step{"come to rest", env.alike}
			env.play(append(s.build(), rest))
			ill.Store(true)
			over := time.After(outage)
			// Creates, updates and deletes on the host are due.
			env.play([]step{
				{"scale", env.scale(s.app, "web", 5)},
				{"change config map", func(ctx context.Context) error {
					patch := []byte(`{"data":{"key":"changed"}}`)
					_, err := env.virtual.CoreV1().ConfigMaps(s.app).Patch(ctx, "config", types.MergePatchType, patch, metav1.PatchOptions{})
					return err
				}},
				{"delete service", func(ctx context.Context) error {
					return env.virtual.CoreV1().Services(s.app).Delete(ctx, "db", metav1.DeleteOptions{})
				}},
				{"delete pod", func(ctx context.Context) error {
					return env.virtual.CoreV1().Pods(s.other).Delete(ctx, "bare", metav1.DeleteOptions{})
				}},
			})
			<-over
			// Some ten objects are tried some seven times with growing pauses.
			if n := tries.Load(); n > 300 {
				t.Errorf("%s: %d requests in %s: that is a busy loop", test.reason, n, outage)
			}
			ill.Store(false)
			env.play([]step{rest})
		})
	}
}

func (env *testEnv) scale(namespace, name string, replicas int) func(context.Context) error {
	return func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
		_, err := env.virtual.AppsV1().Deployments(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
}

// S7: what happened on both sides while the host could not be reached is made
// up for.
func TestSyncerCatchesUpWithAHostThatWasGone(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "gone")
	var gone atomic.Bool
	var tries atomic.Int64
	var watches streams
	env.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		if c.to != toHost {
			return send()
		}
		if gone.Load() {
			tries.Add(1)
			return nil, errors.New("no route to host")
		}
		resp, err := send()
		if err == nil && c.watches() {
			resp = watches.through(resp, nil)
		}
		return resp, err
	})
	s := newScenario(env.virtual, "")
	rest := step{"come to rest", env.alike}
	env.play(append(s.build(), rest))

	gone.Store(true)
	watches.breakAll()
	over := time.After(outage)
	var lost *corev1.Pod
	env.play([]step{
		{"scale", env.scale(s.app, "web", 5)},
		{"delete pod", func(ctx context.Context) error {
			return env.virtual.CoreV1().Pods(s.other).Delete(ctx, "bare", metav1.DeleteOptions{})
		}},
		{"delete another on the host", func(ctx context.Context) (err error) {
			if lost, err = env.virtual.CoreV1().Pods(s.app).Get(ctx, "db-0", metav1.GetOptions{}); err != nil {
				return err
			}
			return env.host.CoreV1().Pods(env.space.HostNamespace()).Delete(ctx, env.space.HostName(s.app, "db-0", 253), *noGrace())
		}},
	})
	<-over
	if n := tries.Load(); n > 300 {
		t.Errorf("%d requests in %s: that is a busy loop", n, outage)
	}
	gone.Store(false)
	env.play([]step{
		// As on a cluster whose node lost it: it is gone, and its set makes another.
		{"see the lost pod replaced", func(ctx context.Context) error {
			pod, err := env.virtual.CoreV1().Pods(s.app).Get(ctx, "db-0", metav1.GetOptions{})
			if err == nil && pod.UID == lost.UID {
				err = errors.New("the pod is still there")
			}
			return err
		}},
		rest,
	})
}

// A watch that lags, on either side, leads the syncer to no second host pod and
// to no deletion of a pod that lives (S7).
func TestALaggingWatchDoublesAndDeletesNothing(t *testing.T) {
	t.Parallel()
	for _, to := range []string{toHost, toSpace} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			env := newEnv(t, "lags-"+to)
			var watches streams
			env.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
				resp, err := send()
				if err == nil && c.to == to && c.watches() {
					resp = watches.through(resp, lag(700*time.Millisecond))
				}
				return resp, err
			})
			env.playScenario("", false)
		})
	}
}

// While the host's watch shows nothing at all, a pod that is deleted in the
// space is not gone from it before the host was told to stop it.
func TestAPodIsNotGoneBeforeTheHostKnows(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "blind")
	var blind atomic.Bool
	released := make(chan struct{})
	var watches streams
	env.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		resp, err := send()
		if err == nil && c.to == toHost && c.watches() && strings.HasSuffix(c.URL.Path, "/pods") {
			resp = watches.through(resp, func(arrived time.Time, ended <-chan struct{}) {
				if blind.Load() {
					until(released)(arrived, ended)
				}
			})
		}
		return resp, err
	})
	s := newScenario(env.virtual, "")
	env.play(append(s.build()[:7], step{"come to rest", env.alike}))
	blind.Store(true)
	hostPod := func(ctx context.Context) (*corev1.Pod, error) {
		return env.host.CoreV1().Pods(env.space.HostNamespace()).Get(ctx, env.space.HostName(s.app, "unseen", 253), metav1.GetOptions{})
	}
	// A finalizer on the host keeps the stopped pod there to be seen.
	env.play([]step{
		{"make pod", made(env.virtual.CoreV1().Pods(s.app).Create, newPod("unseen"))},
		{"see it on the host", func(ctx context.Context) error {
			pod, err := hostPod(ctx)
			if err != nil {
				return err
			}
			pod.Finalizers = append(pod.Finalizers, "example.com/keep")
			_, err = env.host.CoreV1().Pods(pod.Namespace).Update(ctx, pod, metav1.UpdateOptions{})
			return err
		}},
		{"give it a node, so that it takes its time to end", func(ctx context.Context) error {
			return ignoreConflict(env.virtual.CoreV1().Pods(s.app).Bind(ctx, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: "unseen"}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-1"},
			}, metav1.CreateOptions{}))
		}},
		{"delete it", func(ctx context.Context) error {
			return env.virtual.CoreV1().Pods(s.app).Delete(ctx, "unseen", metav1.DeleteOptions{})
		}},
		{"see the host told", func(ctx context.Context) error {
			pod, err := hostPod(ctx)
			if err == nil && pod.DeletionTimestamp == nil {
				_, err = env.virtual.CoreV1().Pods(s.app).Get(ctx, "unseen", metav1.GetOptions{})
				if err != nil {
					env.t.Errorf("the pod is gone from the space, and runs on the host: %v", err)
					return nil
				}
				return errors.New("the host pod is not being deleted")
			}
			return err
		}},
	})
	close(released)
	env.play([]step{
		{"let it go", func(ctx context.Context) error {
			patch := []byte(`{"metadata":{"finalizers":null}}`)
			_, err := env.host.CoreV1().Pods(env.space.HostNamespace()).Patch(ctx, env.space.HostName(s.app, "unseen", 253), types.MergePatchType, patch, metav1.PatchOptions{})
			return ignoreNotFound(err)
		}},
		{"come to rest", env.alike},
	})
}
