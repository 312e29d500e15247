// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/translate"
)

// foreigners are host objects in a space's namespace that the syncer did not
// make, under the names that virtual objects of the scenario would get.
func (env *testEnv) foreigners(namespace string) []metav1.Object {
	name := func(virtual string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: env.space.HostName(namespace, virtual, translate.LimitSubdomain), Namespace: env.space.HostNamespace()}
	}
	pod := newPod("")
	pod.ObjectMeta = name("taken")
	pod.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "theirs"}}}
	labelled := newConfigMap("config") // as isolation objects are: the space's, but no virtual object's
	labelled.ObjectMeta = name("config")
	labelled.Labels = map[string]string{translate.LabelSpace: env.space.Name}
	cousin := newSecret("credentials") // says that it is another space's
	cousin.ObjectMeta = name("credentials")
	cousin.Labels = map[string]string{translate.LabelSpace: "cousin"}
	cousin.Annotations = map[string]string{
		translate.AnnotationNamespace: namespace, translate.AnnotationName: "credentials", translate.AnnotationUID: "1",
	}
	claim := newClaim("")
	claim.ObjectMeta = name("data")
	service := newService("web", "")
	service.ObjectMeta = metav1.ObjectMeta{Name: env.space.HostName(namespace, "late", translate.LimitLabel), Namespace: env.space.HostNamespace()}
	return []metav1.Object{pod, labelled, cousin, claim, service}
}

// seen reads each of the foreigners anew, less what the host itself changes.
func (env *testEnv) seen(ctx context.Context, objects []metav1.Object) ([]metav1.Object, error) {
	var out []metav1.Object
	core := env.host.CoreV1()
	for _, o := range objects {
		var now metav1.Object
		var err error
		switch o.(type) {
		case *corev1.Pod:
			var pod *corev1.Pod
			if pod, err = core.Pods(o.GetNamespace()).Get(ctx, o.GetName(), metav1.GetOptions{}); err == nil {
				pod.Status, pod.Spec.NodeName, pod.Labels = corev1.PodStatus{}, "", nil // of its node's topology
			}
			now = pod
		case *corev1.ConfigMap:
			now, err = core.ConfigMaps(o.GetNamespace()).Get(ctx, o.GetName(), metav1.GetOptions{})
		case *corev1.Secret:
			now, err = core.Secrets(o.GetNamespace()).Get(ctx, o.GetName(), metav1.GetOptions{})
		case *corev1.PersistentVolumeClaim:
			var claim *corev1.PersistentVolumeClaim
			if claim, err = core.PersistentVolumeClaims(o.GetNamespace()).Get(ctx, o.GetName(), metav1.GetOptions{}); err == nil {
				claim.Status, claim.Annotations, claim.Spec.VolumeName = corev1.PersistentVolumeClaimStatus{}, nil, ""
			}
			now = claim
		case *corev1.Service:
			now, err = core.Services(o.GetNamespace()).Get(ctx, o.GetName(), metav1.GetOptions{})
		default:
			err = fmt.Errorf("no way to read %T", o)
		}
		if err != nil {
			return nil, err
		}
		now.SetManagedFields(nil)
		now.SetResourceVersion("")
		out = append(out, now)
	}
	return out, nil
}

func (env *testEnv) createOnHost(ctx context.Context, objects []metav1.Object) error {
	core, ns := env.host.CoreV1(), env.space.HostNamespace()
	for _, o := range objects {
		var err error
		switch o := o.(type) {
		case *corev1.Pod:
			_, err = created(ctx, core.Pods(ns).Create, o)
		case *corev1.ConfigMap:
			_, err = created(ctx, core.ConfigMaps(ns).Create, o)
		case *corev1.Secret:
			_, err = created(ctx, core.Secrets(ns).Create, o)
		case *corev1.PersistentVolumeClaim:
			_, err = created(ctx, core.PersistentVolumeClaims(ns).Create, o)
		case *corev1.Service:
			_, err = created(ctx, core.Services(ns).Create, o)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// S7: what the syncer did not make it neither writes nor deletes, whatever its
// name and labels say; whose name is taken is told so, and has it once it is free.
func TestForeignHostObjectsAreLeftAlone(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "foreign")
	env.begin(nil)
	s := newScenario(env.virtual, "")
	foreigners := env.foreigners(s.app)
	if err := env.createOnHost(t.Context(), foreigners); err != nil {
		t.Fatal(err)
	}
	before, err := env.seen(t.Context(), foreigners)
	if err != nil {
		t.Fatal(err)
	}
	unchanged := func(ctx context.Context) error {
		after, err := env.seen(ctx, foreigners)
		for i := range after {
			if !equality.Semantic.DeepEqual(before[i], after[i]) {
				t.Errorf("%T %s was changed:\n%v\n%v", after[i], after[i].GetName(), before[i], after[i])
			}
		}
		return err
	}
	taken := func(kind, name string) step {
		return step{"see that the name of " + kind + " " + name + " is taken", func(ctx context.Context) error {
			events, err := env.virtual.CoreV1().Events(s.app).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, e := range events.Items {
				if e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name && e.Reason == engine.ReasonTaken {
					if strings.Contains(e.Message, env.space.HostNamespace()) {
						t.Errorf("the event names the host namespace: %s", e.Message)
					}
					return nil
				}
			}
			return fmt.Errorf("no such event among %d", len(events.Items))
		}}
	}
	services := env.virtual.CoreV1().Services(s.app)
	env.play([]step{
		{"make namespace", s.namespace(s.app)},
		{"make config map", made(env.virtual.CoreV1().ConfigMaps(s.app).Create, newConfigMap("config"))},
		{"make secret", made(env.virtual.CoreV1().Secrets(s.app).Create, newSecret("credentials"))},
		{"make claim", made(env.virtual.CoreV1().PersistentVolumeClaims(s.app).Create, newClaim("data"))},
		{"make pod", made(env.virtual.CoreV1().Pods(s.app).Create, newPod("taken", "data"))},
		{"be refused a service", func(ctx context.Context) error {
			if _, err := services.Create(ctx, newService("late", ""), metav1.CreateOptions{}); err == nil {
				t.Error("the service got an address under a foreign name")
			}
			return nil
		}},
		taken("Pod", "taken"), taken("ConfigMap", "config"), taken("Secret", "credentials"), taken("PersistentVolumeClaim", "data"),
		{"see the foreign objects unchanged", unchanged},
		{"delete the pod", func(ctx context.Context) error {
			return env.virtual.CoreV1().Pods(s.app).Delete(ctx, "taken", metav1.DeleteOptions{})
		}},
		{"see it gone", func(ctx context.Context) error {
			return gone(env.virtual.CoreV1().Pods(s.app).Get(ctx, "taken", metav1.GetOptions{}))
		}},
		{"see the foreign objects unchanged", unchanged},
		{"make the pod again", made(env.virtual.CoreV1().Pods(s.app).Create, newPod("taken", "data"))},
		{"free the names", func(ctx context.Context) error {
			core, ns := env.host.CoreV1(), env.space.HostNamespace()
			return errors.Join(
				core.Pods(ns).Delete(ctx, foreigners[0].GetName(), *noGrace()), core.ConfigMaps(ns).Delete(ctx, foreigners[1].GetName(), *noGrace()),
				core.Secrets(ns).Delete(ctx, foreigners[2].GetName(), *noGrace()),
				core.PersistentVolumeClaims(ns).Delete(ctx, foreigners[3].GetName(), *noGrace()), core.Services(ns).Delete(ctx, foreigners[4].GetName(), *noGrace()),
			)
		}},
		{"make the service", made(services.Create, newService("late", ""))},
		{"come to rest", env.alike},
	})
}

// A host object of ours that somebody changed by hand is as it was, one that was
// deleted by hand is there again; a change of the host's own stays.
func TestChangesByHandOnTheHostAreUndone(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "by-hand")
	env.begin(nil)
	s := newScenario(env.virtual, "")
	rest := step{"come to rest", env.alike}
	env.play(append(s.build(), rest))
	core, ns := env.host.CoreV1(), env.space.HostNamespace()
	patch := func(what string, do func(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) error, name, data string) step {
		return step{what, func(ctx context.Context) error {
			return do(ctx, name, types.MergePatchType, []byte(data), metav1.PatchOptions{})
		}}
	}
	patchMap := func(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) error {
		_, err := core.ConfigMaps(ns).Patch(ctx, name, pt, data, o, sub...)
		return err
	}
	patchService := func(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) error {
		_, err := core.Services(ns).Patch(ctx, name, pt, data, o, sub...)
		return err
	}
	config, web := env.space.HostName(s.app, "config", 253), env.space.HostName(s.app, "web", 63)
	var tokens string
	env.play([]step{
		patch("change a config map", patchMap, config, `{"data":{"key":"changed by hand"}}`),
		patch("take another's identity away", patchMap, env.space.HostName(s.other, "config", 253), `{"metadata":{"annotations":{"berth.dev/uid":null,"example.com/note":"mine"}}}`),
		patch("change a service's selector and note something", patchService, web, `{"metadata":{"annotations":{"example.com/note":"mine"}},"spec":{"selector":{"berth.dev/space":null,"app":"other"}}}`),
		{"delete a secret", func(ctx context.Context) error {
			return core.Secrets(ns).Delete(ctx, env.space.HostName(s.app, "credentials", 253), metav1.DeleteOptions{})
		}},
		{"delete a token secret", func(ctx context.Context) error {
			tokens = env.space.TokenSecretName(s.app, "db-0")
			return core.Secrets(ns).Delete(ctx, tokens, metav1.DeleteOptions{})
		}},
		{"delete a service", func(ctx context.Context) error {
			return core.Services(ns).Delete(ctx, env.space.HostName(s.other, "web", 63), metav1.DeleteOptions{})
		}},
		rest,
		{"see that the selector is back, and the note still there", func(ctx context.Context) error {
			service, err := core.Services(ns).Get(ctx, web, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if service.Spec.Selector["app"] != "web" || service.Spec.Selector[translate.LabelSpace] != env.space.Name || service.Annotations["example.com/note"] != "mine" {
				return fmt.Errorf("selector is %v, annotations are %v", service.Spec.Selector, service.Annotations)
			}
			return nil
		}},
	})
}
