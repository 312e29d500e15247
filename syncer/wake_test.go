// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
)

// sleeper is a space whose syncer was stopped as a shard stops it. The watches
// on the host go on, as they do in a shard.
type sleeper struct {
	*testEnv
	run   *syncerRun
	wakes atomic.Int64
	stop  func()
}

func (env *testEnv) sleep() *sleeper {
	env.t.Helper()
	s := &sleeper{testEnv: env}
	env.mu.Lock()
	s.run, env.run = env.run, nil
	env.mu.Unlock()
	env.play([]step{{"be idle", func(context.Context) error {
		s.wakes.Store(0)
		s.register()
		// A change that the watches deliver between the two, such as the syncer's last write, wakes the space and leaves the syncer idle.
		if idle := s.run.syncer.Idle(); !idle || s.wakes.Load() != 0 {
			s.stop()
			return errors.New("the syncer is not idle")
		}
		return nil
	}}})
	s.run.end()
	if err := <-s.run.ended; err != nil {
		env.t.Fatal(err)
	}
	env.t.Cleanup(s.run.host.Stop)
	return s
}

func (s *sleeper) register() {
	s.stop = s.run.host.OnChange(s.space.Name, func() { s.wakes.Add(1) })
}

func (env *testEnv) patchOnHost(resource, name, subresource, patch string) func(context.Context) error {
	return func(ctx context.Context) error {
		r := env.host.CoreV1().RESTClient().Patch(types.MergePatchType).Resource(resource).Name(name)
		if resource != "persistentvolumes" {
			r = r.Namespace(env.space.HostNamespace())
		}
		if subresource != "" {
			r = r.SubResource(subresource)
		}
		return r.Body([]byte(patch)).Do(ctx).Error()
	}
}

// T8: a change to a space's host objects wakes it, once; and when it has woken
// it knows what happened while it slept.
func TestASpaceWakesForItsHostObjectsAndCatchesUp(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "wakes")
	env.begin(nil)
	s := newScenario(env.virtual, "")
	rest := step{"come to rest", env.alike}
	env.play(append(s.build(), rest))
	name := func(virtual string) string { return env.space.HostName(s.app, virtual, translate.LimitSubdomain) }
	claim, err := env.host.CoreV1().PersistentVolumeClaims(env.space.HostNamespace()).Get(t.Context(), name("data-db-0"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lost, err := env.virtual.CoreV1().Pods(s.app).Get(t.Context(), "db-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	env.play([]step{{"make a pod that will fail", made(env.virtual.CoreV1().Pods(s.app).Create, newPod("fails"))}, rest})

	asleep := env.sleep()
	asleep.stop()
	const note = `{"metadata":{"annotations":{"example.com/note":"by others"}}}`
	changes := map[string]struct {
		reason string
		change func(context.Context) error
	}{
		"pod status": {"it failed", env.patchOnHost("pods", name("fails"), "status", `{"status":{"phase":"Failed","reason":"Evicted","message":"out of memory"}}`)},
		"service":    {"it got an address", env.patchOnHost("services", env.space.HostName(s.app, "web", translate.LimitLabel), "", note)},
		"config map": {"it is as it was again afterwards", env.patchOnHost("configmaps", name("config"), "", `{"data":{"key":"changed by hand"}}`)},
		"secret deleted": {"it is made again", func(ctx context.Context) error {
			return env.host.CoreV1().Secrets(env.space.HostNamespace()).Delete(ctx, name("credentials"), metav1.DeleteOptions{})
		}},
		"claim":  {"it was resized", env.patchOnHost("persistentvolumeclaims", name("data-db-0"), "", note)},
		"volume": {"it is bound to a claim of the space", env.patchOnHost("persistentvolumes", claim.Spec.VolumeName, "", note)},
		"pod deleted": {"its node is drained", func(ctx context.Context) error {
			return env.host.CoreV1().Pods(env.space.HostNamespace()).Delete(ctx, name("db-0"), *noGrace())
		}},
	}
	for what, c := range changes {
		asleep.wakes.Store(0)
		asleep.register()
		env.play([]step{{what, c.change}, {"wake for " + what + ": " + c.reason, func(context.Context) error {
			if n := asleep.wakes.Load(); n != 1 {
				return fmt.Errorf("woken %d times", n)
			}
			return nil
		}}})
	}
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: name("fails") + ".18a0c5f4b1d2e3f4", Namespace: env.space.HostNamespace()},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: env.space.HostNamespace(), Name: name("fails")},
		Reason:         "Killing", Message: "Stopping container main", Type: corev1.EventTypeNormal, Count: 1,
		Source: corev1.EventSource{Component: "kubelet"}, ReportingController: "kubelet", FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
	}
	env.play([]step{
		{"make event", made(env.host.CoreV1().Events(env.space.HostNamespace()).Create, event)},
		{"stop the control plane", func(ctx context.Context) error { return errors.Join(env.stopPlane(ctx), env.startPlane(ctx)) }},
	})

	env.begin(nil)
	env.play([]step{
		{"see the pod failed", func(ctx context.Context) error {
			pod, err := env.virtual.CoreV1().Pods(s.app).Get(ctx, "fails", metav1.GetOptions{})
			if err == nil && (pod.Status.Phase != corev1.PodFailed || pod.Status.Reason != "Evicted") {
				err = fmt.Errorf("it is %s (%s)", pod.Status.Phase, pod.Status.Reason)
			}
			return err
		}},
		{"see the event", func(ctx context.Context) error {
			events, err := env.virtual.CoreV1().Events(s.app).List(ctx, metav1.ListOptions{FieldSelector: "reason=Killing,involvedObject.name=fails"})
			if err == nil && len(events.Items) != 1 {
				err = fmt.Errorf("there are %d", len(events.Items))
			}
			return err
		}},
		{"see the lost pod replaced", func(ctx context.Context) error {
			pod, err := env.virtual.CoreV1().Pods(s.app).Get(ctx, "db-0", metav1.GetOptions{})
			if err == nil && pod.UID == lost.UID {
				err = errors.New("the pod is still there")
			}
			return err
		}},
		{"delete the pod that failed", func(ctx context.Context) error {
			return ignoreNotFound(env.virtual.CoreV1().Pods(s.app).Delete(ctx, "fails", metav1.DeleteOptions{}))
		}},
		rest, // config map and secret as they were
	})
}

// T8: what a syncer wrote last does not wake its space, however late the watches
// show it; it is not idle before they have.
func TestASpacesOwnWritesDoNotWakeIt(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "own-writes")
	var watches streams
	late := func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		resp, err := send()
		if err == nil && c.to == toHost && c.watches() {
			resp = watches.through(resp, lag(700*time.Millisecond))
		}
		return resp, err
	}
	// A service without a selector: nobody else on the host writes to it.
	v := newService("mine", corev1.ClusterIPNone)
	v.Spec.Selector = nil
	services := env.virtual.CoreV1().Services("default")
	barrier := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: translate.HostNamespacePrefix + "own-writes-barrier"}}
	if _, err := env.host.CoreV1().Namespaces().Create(t.Context(), barrier, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = env.host.CoreV1().Namespaces().Delete(context.Background(), barrier.Name, metav1.DeleteOptions{})
	})
	writes := []struct {
		what string
		do   func(context.Context) error
		done func(context.Context) error
	}{
		{"create", made(services.Create, v), func(ctx context.Context) error {
			host, err := env.hostService(ctx, "mine")
			if id, _ := translate.IdentityOf(host); err == nil && id.UID == "" {
				err = errors.New("it is only reserved")
			}
			return err
		}},
		{"update", func(ctx context.Context) error {
			_, err := services.Patch(ctx, "mine", types.MergePatchType, []byte(`{"spec":{"publishNotReadyAddresses":true}}`), metav1.PatchOptions{})
			return err
		}, func(ctx context.Context) error {
			host, err := env.hostService(ctx, "mine")
			if err == nil && !host.Spec.PublishNotReadyAddresses {
				err = errors.New("not yet")
			}
			return err
		}},
		{"delete", func(ctx context.Context) error {
			return ignoreNotFound(services.Delete(ctx, "mine", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
		}, func(ctx context.Context) error { return gone(env.hostService(ctx, "mine")) }},
	}
	for i, w := range writes {
		env.begin(late)
		env.play([]step{{w.what, w.do}, {"see it on the host", w.done}})
		asleep := env.sleep()
		// When the watch shows what came after the write, it has shown the write.
		var shown atomic.Bool
		defer asleep.run.host.OnChange("own-writes-barrier", func() { shown.Store(true) })()
		after := newService(fmt.Sprintf("after-%d", i), corev1.ClusterIPNone)
		after.Labels = map[string]string{translate.LabelSpace: "own-writes-barrier"}
		env.play([]step{
			{"make another's service", func(ctx context.Context) error {
				_, err := env.host.CoreV1().Services(barrier.Name).Create(ctx, after, metav1.CreateOptions{})
				if apierrors.IsAlreadyExists(err) {
					err = nil
				}
				return err
			}},
			{"see it in the watch", func(context.Context) error {
				if !shown.Load() {
					return errors.New("not yet")
				}
				return nil
			}},
		})
		if n := asleep.wakes.Load(); n != 0 {
			t.Errorf("%s: the space was woken by its own write", w.what)
		}
	}
}
