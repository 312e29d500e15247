// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/translate"
)

// podLog remembers all pods that ever were, on both sides. It watches past the
// syncer's wire.
type podLog struct {
	mu   sync.Mutex
	ours map[types.UID]string               // virtual pods: UID to namespace
	host map[types.UID]map[types.UID]string // host pods of each virtual pod: UID to name
}

func (env *testEnv) logPods() *podLog {
	env.t.Helper()
	c := &podLog{ours: map[types.UID]string{}, host: map[types.UID]map[types.UID]string{}}
	stop := make(chan struct{})
	ours := informers.NewSharedInformerFactory(env.virtual, 0)
	theirs := informers.NewSharedInformerFactoryWithOptions(env.host, 0, informers.WithNamespace(env.space.HostNamespace()))
	for factory, add := range map[informers.SharedInformerFactory]func(*corev1.Pod){ours: c.addOurs, theirs: c.addHost} {
		_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
			if pod, ok := o.(*corev1.Pod); ok {
				add(pod)
			}
		}})
		if err != nil {
			env.t.Fatal(err)
		}
		factory.Start(stop)
		factory.WaitForCacheSync(stop)
	}
	env.t.Cleanup(func() {
		close(stop)
		ours.Shutdown()
		theirs.Shutdown()
	})
	return c
}

func (c *podLog) addOurs(pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ours[pod.UID] = pod.Namespace
}

func (c *podLog) addHost(pod *corev1.Pod) {
	id, ok := translate.IdentityOf(pod)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.host[id.UID] == nil {
		c.host[id.UID] = map[types.UID]string{}
	}
	c.host[id.UID][pod.UID] = pod.Name
}

// count is how many pods there ever were in the namespaces.
func (c *podLog) count(namespaces ...string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	total := 0
	for _, in := range c.ours {
		for _, ns := range namespaces {
			if in == ns {
				total++
			}
		}
	}
	return total
}

// twice names a virtual pod that ever had two host pods.
func (c *podLog) twice() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, pods := range c.host {
		if len(pods) > 1 {
			return fmt.Errorf("virtual pod %s has had %d host pods: %v", uid, len(pods), pods)
		}
	}
	return nil
}
