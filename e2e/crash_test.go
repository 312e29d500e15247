// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// S7, D1, X3: killed in the midst of work, again and again, Berth goes on with
// nothing lost, nothing twice, and nothing left over.
func TestBerthGoesOnAfterKillsInTheMidstOfChurn(t *testing.T) {
	t.Parallel()
	b := start(t)
	demo := b.demo(t)
	demo.apply(t, database)
	demo.kubectl(t, "create", "deployment", "steady", "--image=nginx", "--replicas=3")
	demo.kubectl(t, "create", "deployment", "bouncing", "--image=nginx", "--replicas=2")
	steady, hostSteady := untouched(t, demo, "default"), untouched(t, b.host(t), hostNamespace)

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	acknowledged := &ledger{live: map[string]types.UID{}}
	for round := range 3 {
		calls := 40 + random.IntN(160)
		t.Logf("round %d: kill after %d calls", round, calls)
		killInChurn(t, b, acknowledged, round, calls, random.Uint64())
		b.up(t)

		demo, host := b.demo(t), b.host(t)
		if err := acknowledged.check(t, demo); err != nil {
			t.Errorf("after kill %d: %v", round, err)
		}
		eventually(t, func() error { return checkSynced(t, demo, host, "demo", withReservations) })
		if now := untouched(t, demo, "default"); !same(now, steady) {
			t.Errorf("after kill %d, pods that nobody touched are %v, were %v", round, now, steady)
		}
		if now := untouched(t, host, hostNamespace); !same(now, hostSteady) {
			t.Errorf("after kill %d, host pods that nobody touched are %v, were %v", round, now, hostSteady)
		}
		demo.kubectl(t, "rollout", "status", "deployment/bouncing", "--timeout=90s")
	}
	checkEmptied(t, b.demo(t), b.host(t))
}

// untouched are the pods of the workloads that the churn leaves alone.
func untouched(t *testing.T, c *cluster, namespace string) map[types.UID]bool {
	t.Helper()
	return uids(c.awaitPods(t, namespace, "app in (db, steady)", 2+3))
}

// ledger is what a space has acknowledged.
type ledger struct {
	mu   sync.Mutex
	live map[string]types.UID // by kind and name: created, and not asked to be deleted
}

func (l *ledger) created(kind string, object metav1.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[kind+"/"+object.GetName()] = object.GetUID()
}

// deleting is told before the call: whether it is heard, nobody knows.
func (l *ledger) deleting(kind, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.live, kind+"/"+name)
}

func (l *ledger) check(t *testing.T, c *cluster) error {
	t.Helper()
	all := metav1.ListOptions{}
	found := map[string]types.UID{}
	add := func(kind string, object metav1.Object) { found[kind+"/"+object.GetName()] = object.GetUID() }
	for _, o := range must(c.CoreV1().Pods("default").List(t.Context(), all))(t).Items {
		add("pod", &o)
	}
	for _, o := range must(c.CoreV1().Services("default").List(t.Context(), all))(t).Items {
		add("service", &o)
	}
	for _, o := range must(c.CoreV1().ConfigMaps("default").List(t.Context(), all))(t).Items {
		add("configmap", &o)
	}
	for _, o := range must(c.CoreV1().Secrets("default").List(t.Context(), all))(t).Items {
		add("secret", &o)
	}
	for _, o := range must(c.CoreV1().PersistentVolumeClaims("default").List(t.Context(), all))(t).Items {
		add("claim", &o)
	}
	var errs []error
	for name, uid := range l.live {
		if found[name] != uid {
			errs = append(errs, fmt.Errorf("%s was acknowledged as %s and is %q", name, uid, found[name]))
		}
	}
	return errors.Join(errs...)
}

// killInChurn lets clients work on a space until some number of their calls has
// been answered, and then kills berth.
func killInChurn(t *testing.T, b *berth, acknowledged *ledger, round, calls int, seed uint64) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	answered := make(chan struct{}, 1000)
	var clients sync.WaitGroup
	for i, work := range []func(*churn, context.Context) error{(*churn).pods, (*churn).pods, (*churn).services, (*churn).claims, (*churn).scale} {
		c := &churn{
			cluster: b.demo(t), ledger: acknowledged, answered: answered, random: rand.New(rand.NewPCG(seed, uint64(i))),
			name: fmt.Sprintf("churn-%d-%d", round, i),
		}
		clients.Go(func() {
			for ctx.Err() == nil {
				err := work(c, ctx)
				// What is no answer of the API's is the kill.
				if status := apierrors.APIStatus(nil); errors.As(err, &status) && !strings.Contains(err.Error(), "quota") {
					t.Errorf("%s: %v", c.name, err)
				}
			}
		})
	}
	for range calls {
		select {
		case <-answered:
		case <-b.done:
			t.Fatal("berth ended by itself")
		}
	}
	b.crash(t)
	end()
	clients.Wait()
}

// churn is one client that makes and deletes things.
type churn struct {
	*cluster
	ledger   *ledger
	answered chan<- struct{}
	random   *rand.Rand
	name     string
	count    int
}

func (c *churn) next() string {
	c.count++
	return fmt.Sprintf("%s-%d", c.name, c.count)
}

func (c *churn) ok(ctx context.Context) {
	select {
	case c.answered <- struct{}{}:
	case <-ctx.Done():
	}
}

// pods makes a pod with a config map and a secret, and deletes every other one at once.
func (c *churn) pods(ctx context.Context) error {
	name := c.next()
	made, err := c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	c.ledger.created("configmap", made)
	c.ok(ctx)
	secret, err := c.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	c.ledger.created("secret", secret)
	c.ok(ctx)
	pod, err := c.CoreV1().Pods("default").Create(ctx, newPod(name, mounting(name, name)), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	c.ledger.created("pod", pod)
	c.ok(ctx)
	if c.random.IntN(4) == 0 {
		return nil
	}
	c.ledger.deleting("pod", name)
	grace := int64(c.random.IntN(3))
	err = c.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	c.ok(ctx)
	return err
}

// services makes a service, and deletes and makes it again.
func (c *churn) services(ctx context.Context) error {
	name := c.next()
	for again := range 2 {
		if again > 0 {
			c.ledger.deleting("service", name)
			if err := c.CoreV1().Services("default").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				return err
			}
			c.ok(ctx)
			if c.random.IntN(2) == 0 {
				return nil
			}
		}
		service, err := c.CoreV1().Services("default").Create(ctx, newService(name, selecting("steady")), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		c.ledger.created("service", service)
		c.ok(ctx)
	}
	return nil
}

// claims makes a volume claim, and deletes most of them.
func (c *churn) claims(ctx context.Context) error {
	name := c.next()
	claim, err := c.CoreV1().PersistentVolumeClaims("default").Create(ctx, newClaim(name), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	c.ledger.created("claim", claim)
	c.ok(ctx)
	if c.random.IntN(5) == 0 {
		return nil
	}
	c.ledger.deleting("claim", name)
	err = c.CoreV1().PersistentVolumeClaims("default").Delete(ctx, name, metav1.DeleteOptions{})
	c.ok(ctx)
	return err
}

// scale changes the size of a deployment.
func (c *churn) scale(ctx context.Context) error {
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, c.random.IntN(8))
	_, err := c.AppsV1().Deployments("default").Patch(ctx, "bouncing", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	c.ok(ctx)
	return err
}

// checkEmptied takes everything down and looks for what is left on the host.
func checkEmptied(t *testing.T, demo, host *cluster) {
	t.Helper()
	demo.kubectl(t, "delete", "deployments,statefulsets,pods", "--all", "--grace-period=1", "--wait=false")
	demo.kubectl(t, "delete", "pvc,configmaps,secrets", "--all", "--wait=false")
	services := must(demo.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{}))(t)
	for _, s := range services.Items {
		if s.Name != "kubernetes" {
			if err := demo.CoreV1().Services("default").Delete(t.Context(), s.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	}
	eventually(t, func() error {
		all := metav1.ListOptions{}
		return errors.Join(
			checkSynced(t, demo, host, "demo", withoutReservations),
			expect("number of host pods", len(must(host.CoreV1().Pods(hostNamespace).List(t.Context(), all))(t).Items), 0),
			expect("number of host claims", len(must(host.CoreV1().PersistentVolumeClaims(hostNamespace).List(t.Context(), all))(t).Items), 0),
			expect("number of host volumes", len(must(host.CoreV1().PersistentVolumes().List(t.Context(), all))(t).Items), 0),
			expect("number of volumes", len(must(demo.CoreV1().PersistentVolumes().List(t.Context(), all))(t).Items), 0),
			expect("number of host secrets", len(must(host.CoreV1().Secrets(hostNamespace).List(t.Context(), all))(t).Items), 0),
			expect("number of host services", len(must(host.CoreV1().Services(hostNamespace).List(t.Context(), all))(t).Items), 1))
	})
}
