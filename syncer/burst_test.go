// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// S7: what waits to be on the host goes before the tokens of pods that are there,
// so that a burst of pods is on the host sooner.
func TestABurstOfPodsIsOnTheHostBeforeItsTokens(t *testing.T) {
	t.Parallel()
	const (
		workers = 64 // as many are under way at once
		more    = 6
	)
	env := newEnv(t, "burst")
	var pods, refused, tokens, created atomic.Int64
	pass := make(chan struct{})
	env.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		if c.to == toHost && c.Method == http.MethodPost {
			switch path.Base(c.URL.Path) {
			case "pods":
				pods.Add(1)
				select {
				case <-pass:
				case <-c.Context().Done():
					return nil, c.Context().Err()
				}
				resp, err := send()
				if err == nil && resp.StatusCode != http.StatusCreated {
					refused.Add(1)
				}
				return resp, err
			case "secrets":
				tokens.Add(1)
				resp, err := send()
				if err == nil && resp.StatusCode == http.StatusCreated {
					created.Add(1)
				}
				return resp, err
			}
		}
		return send()
	})
	under := func(n int64) step {
		return step{fmt.Sprintf("see %d pods under way", n), func(context.Context) error {
			if have := pods.Load(); have < n {
				return fmt.Errorf("there are %d", have)
			}
			return nil
		}}
	}
	steps := make([]step, 0, workers+more+1)
	for i := range workers + more {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i)}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "registry.example/image:1"}},
		}}
		steps = append(steps, step{"make pod", made(env.virtual.CoreV1().Pods("default").Create, pod)})
	}
	env.play(append(steps, under(workers), step{"see the others wait", func(context.Context) error {
		if have := env.run.syncer.Stats().Queued; have < more {
			return fmt.Errorf("%d wait", have)
		}
		return nil
	}}))
	for range more {
		pass <- struct{}{}
	}
	env.play([]step{under(workers + more)})
	// Now and then the queue takes what is not new: nothing starves. A pod that the host refuses, since its quota counts others at the same
	// time, is not new when its turn comes again.
	if n := tokens.Load(); n > 2+refused.Load() {
		t.Errorf("tokens of %d of the first %d pods were written while other pods waited; %d were refused at first", n, more, refused.Load())
	}
	close(pass)
	env.play([]step{{"come to rest", env.alike}, {"see all tokens", func(context.Context) error {
		if n := created.Load(); n != workers+more { // a request that failed was made again
			return fmt.Errorf("there are %d", n)
		}
		return nil
	}}})
}
