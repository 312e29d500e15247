// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/translate"
	berthadmission "github.com/berth-dev/berth/vcluster/admission"
)

func (env *testEnv) hostService(ctx context.Context, name string) (*corev1.Service, error) {
	return env.host.CoreV1().Services(env.space.HostNamespace()).Get(ctx, env.space.HostName("default", name, translate.LimitLabel), metav1.GetOptions{})
}

// current reads the space's service of v's name.
func (env *testEnv) current(v *corev1.Service) berthadmission.Current {
	return func(ctx context.Context) (*corev1.Service, error) {
		return env.virtual.CoreV1().Services(v.Namespace).Get(ctx, v.Name, metav1.GetOptions{})
	}
}

// reserved reserves a service as admission does, and goes no further.
func (env *testEnv) reserved(t *testing.T, name string) *corev1.Service {
	t.Helper()
	v := newService(name, "")
	v.Namespace = "default"
	host, err := env.reserve(t.Context(), v, env.current(v))
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// S7: an address that was reserved for a service that never came is given back
// after a minute; one whose service came, however late within it, is that
// service's.
func TestAReservationWaitsAMinuteForItsService(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "reserve")
	now := testingclock.NewFakePassiveClock(time.Now())
	env.clock = now
	env.begin(nil)
	lost, kept := env.reserved(t, "lost"), env.reserved(t, "kept")
	if err := env.kill(); err != nil {
		t.Fatal(err)
	}

	// A run that finds them fresh leaves them alone; that it has looked at them
	// is known from what it did with an older one.
	now.SetTime(lost.CreationTimestamp.Add(50 * time.Second))
	env.begin(nil)
	if _, err := env.virtual.CoreV1().Services("default").Create(t.Context(), newService("kept", ""), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	env.play([]step{{"see the late service adopt its reservation", func(ctx context.Context) error {
		host, err := env.hostService(ctx, "kept")
		if err != nil {
			return err
		}
		v, err := env.virtual.CoreV1().Services("default").Get(ctx, "kept", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if host.UID != kept.UID || v.Spec.ClusterIP != kept.Spec.ClusterIP {
			t.Errorf("the service got %s, reserved was %s", v.Spec.ClusterIP, kept.Spec.ClusterIP)
		}
		if id, _ := translate.IdentityOf(host); id.UID != v.UID {
			return fmt.Errorf("the host object is marked as %v", id)
		}
		return nil
	}}})
	if _, err := env.hostService(t.Context(), "lost"); err != nil {
		t.Errorf("given back within the minute: %v", err)
	}
	if err := env.kill(); err != nil {
		t.Fatal(err)
	}

	now.SetTime(lost.CreationTimestamp.Add(61 * time.Second))
	env.begin(nil)
	env.play([]step{
		{"see the other given back", func(ctx context.Context) error { return gone(env.hostService(ctx, "lost")) }},
		{"come to rest", env.alike},
	})
}

// What is on the host under a service's name decides what a reservation does.
func TestAReservationMeetsWhatIsThere(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "reserve-meets")
	// Without a syncer, which would tidy up.
	hosts := env.host.CoreV1().Services(env.space.HostNamespace())
	put := func(t *testing.T, name string, change func(*corev1.Service)) *corev1.Service {
		t.Helper()
		v := newService(name, "")
		v.Namespace, v.UID = "default", "old"
		host := env.space.Service(v)
		if change != nil {
			change(host)
		}
		return must(t, hosts.Create, host)
	}
	ask := func(name string, uid types.UID) (*corev1.Service, error) {
		v := newService(name, "")
		v.Namespace, v.UID = "default", uid
		return env.reserve(t.Context(), v, env.current(v))
	}
	t.Run("one that is gone from the space: a new service gets its own", func(t *testing.T) {
		old := put(t, "left", nil)
		host, err := ask("left", "")
		if err != nil || host.UID == old.UID || host.Spec.ClusterIP == "" {
			t.Fatalf("got %v (%v)", host, err)
		}
		if id, _ := translate.IdentityOf(host); id.UID != "" {
			t.Errorf("marked as %v, and is not anybody's yet", id)
		}
	})
	t.Run("its own: an update changes it", func(t *testing.T) {
		old := put(t, "own", nil)
		host, err := ask("own", "old")
		if err != nil || host.UID != old.UID || host.Spec.ClusterIP != old.Spec.ClusterIP {
			t.Fatalf("got %v (%v)", host, err)
		}
	})
	t.Run("another's, which came meanwhile: it is left alone", func(t *testing.T) {
		old := put(t, "other", nil)
		host, err := ask("other", "stale")
		if host != nil || err != nil {
			t.Fatalf("got %v (%v)", host, err)
		}
		if now, err := hosts.Get(t.Context(), old.Name, metav1.GetOptions{}); err != nil || now.ResourceVersion != old.ResourceVersion {
			t.Errorf("it is %v (%v)", now, err)
		}
	})
	t.Run("a reservation: the second gets the same", func(t *testing.T) {
		first, second := env.reserved(t, "raced"), env.reserved(t, "raced")
		if first.UID != second.UID || first.Spec.ClusterIP != second.Spec.ClusterIP {
			t.Errorf("the first got %s, the second %s: one of them shows an address that is not its own", first.Spec.ClusterIP, second.Spec.ClusterIP)
		}
	})
	t.Run("a foreign object: it is left alone", func(t *testing.T) {
		old := put(t, "foreign", func(s *corev1.Service) {
			s.Labels, s.Annotations, s.Spec.Selector = nil, nil, map[string]string{"app": "theirs"}
		})
		if host, err := ask("foreign", ""); err == nil {
			t.Errorf("got %v", host)
		}
		if now, err := hosts.Get(t.Context(), old.Name, metav1.GetOptions{}); err != nil || now.ResourceVersion != old.ResourceVersion {
			t.Errorf("it is %v (%v)", now, err)
		}
	})
}

// What a request has changed on the host ahead of the space stays until the
// request has ended, however long that takes: a webhook of the tenant's may be
// slow. It is undone if the space did not take it in.
func TestAnUpdateIsReservedUntilItsRequestHasEnded(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "reserve-held")
	env.begin(nil)
	must(t, env.virtual.CoreV1().Services("default").Create, newService("web", ""))
	env.play([]step{{"come to rest", env.alike}})
	v, err := env.virtual.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request, end := context.WithCancel(t.Context())
	defer end()
	v.Spec.Type = corev1.ServiceTypeNodePort
	reserved, err := env.reserve(request, v, env.current(v))
	if err != nil || reserved.Spec.Ports[0].NodePort == 0 {
		t.Fatalf("got %v (%v)", reserved, err)
	}
	testhost.Eventually(t, "see the syncer put it off", func(ctx context.Context) error {
		host, err := env.hostService(ctx, "web")
		if err != nil {
			return err
		}
		if host.Spec.Type != corev1.ServiceTypeNodePort || host.Spec.Ports[0].NodePort != reserved.Spec.Ports[0].NodePort {
			t.Fatalf("undone while the request is under way: it is %v", host.Spec)
		}
		if _, ok := env.run.syncer.NextTimer(); !ok {
			return errors.New("it has not")
		}
		return nil
	})
	end()
	env.play([]step{{"see it undone", env.alike}})
	if host, err := env.hostService(t.Context(), "web"); err != nil || host.Spec.Type != corev1.ServiceTypeClusterIP {
		t.Errorf("it is %v (%v)", host.Spec, err)
	}
}

// A tenant that replaces its services without naming what was allocated to
// them, at the same time as others of the name come and go, sees the host's
// addresses at every moment.
func TestReplacedServicesKeepTheHostsAddresses(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "replace")
	env.begin(nil)
	services := env.virtual.CoreV1().Services("default")
	v, err := services.Create(t.Context(), newService("web", ""), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, kind := range []corev1.ServiceType{corev1.ServiceTypeNodePort, corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeNodePort} {
		env.play([]step{{"come to rest", env.alike}, {"replace it", func(ctx context.Context) error {
			current, err := services.Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return err
			}
			next := newService("web", "")
			next.ResourceVersion, next.Spec.Type = current.ResourceVersion, kind
			next.Spec.Ports[0].Port = int32(80 + i)
			if kind == corev1.ServiceTypeExternalName {
				next.Spec.ExternalName, next.Spec.Selector = "example.com", nil
			}
			next, err = services.Update(ctx, next, metav1.UpdateOptions{})
			if err == nil && next.UID != v.UID {
				t.Errorf("a replacement has UID %s, want %s", next.UID, v.UID)
			}
			return err
		}}})
	}
	env.play([]step{{"come to rest", env.alike}})

	// By hand on the host, or by a race, the addresses came to differ.
	env.play([]step{
		{"give the host's another address", func(ctx context.Context) error {
			host, err := env.hostService(ctx, "web")
			if err != nil {
				return err
			}
			if err := env.kill(); err != nil {
				return err
			}
			if err := env.host.CoreV1().Services(host.Namespace).Delete(ctx, host.Name, metav1.DeleteOptions{}); err != nil {
				return err
			}
			host.ObjectMeta = metav1.ObjectMeta{Name: host.Name, Namespace: host.Namespace, Labels: host.Labels, Annotations: host.Annotations}
			host.Spec.ClusterIP, host.Spec.ClusterIPs = "", nil
			_, err = created(ctx, env.host.CoreV1().Services(host.Namespace).Create, host)
			env.begin(nil)
			return err
		}},
		{"come to rest", env.alike},
	})
}
