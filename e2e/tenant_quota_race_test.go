// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
)

// raceTree is a tree of depth 4, with the parent and the limit of pods of each tenant.
var raceTree = []struct { //nolint:gochecknoglobals // a table of the tests
	name, parent string
	pods         int
}{{"race-1", "", 14}, {"race-2", "race-1", 12}, {"race-3", "race-2", 8}, {"race-4", "race-3", 5}, {"race-5", "race-1", 7}}

// used counts the pods on the host of each tenant and those below it, from the events of the host, and remembers the most of each.
type used struct {
	mu   sync.Mutex
	pods map[string]string // the space, by the name of the pod
	most map[string]int
}

func (u *used) count(tenant string) (count int) {
	below := map[string]bool{tenant: true}
	for _, one := range raceTree { // parents come first
		if below[one.parent] {
			below[one.name] = true
		}
	}
	for _, space := range u.pods {
		if below[space] {
			count++
		}
	}
	return count
}

func (u *used) saw(o any, gone bool) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	space := strings.TrimPrefix(pod.Namespace, translate.HostNamespacePrefix)
	if !strings.HasPrefix(space, "race-") {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if gone || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		delete(u.pods, pod.Namespace+"/"+pod.Name)
	} else {
		u.pods[pod.Namespace+"/"+pod.Name] = space
	}
	for _, one := range raceTree {
		u.most[one.name] = max(u.most[one.name], u.count(one.name))
	}
}

// Q3, Q5: clients race in all spaces of a tree of depth 4, and delete what they have created. No limit is passed by one pod, nothing gets
// stuck, and in the end exactly as many pods exist as fit.
func TestQuotasHoldAgainstRaces(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator")
	host := b.host(t)
	for _, one := range raceTree {
		parent := ""
		if one.parent != "" {
			parent = "parent: " + one.parent + ", "
		}
		host.apply(t, tenantObject(one.name, fmt.Sprintf("{%squota: {pods: %d}}", parent, one.pods)))
		awaitTenant(t, host, one.name)
	}
	seen := &used{pods: map[string]string{}, most: map[string]int{}}
	pods := informers.NewSharedInformerFactory(host, 0).Core().V1().Pods().Informer()
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { seen.saw(o, false) },
		UpdateFunc: func(_, o any) { seen.saw(o, false) },
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			seen.saw(o, true)
		},
	}); err != nil {
		t.Fatal(err)
	}
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	go pods.RunWithContext(watching)
	var created, refused, others atomic.Int64
	var clients sync.WaitGroup
	for _, one := range raceTree {
		space := b.space(t, one.name)
		for client := range 3 {
			clients.Go(func() {
				for i := range 40 {
					name := fmt.Sprintf("race-%d-%d", client, i)
					_, err := space.CoreV1().Pods("default").Create(t.Context(), racePod(name), metav1.CreateOptions{})
					switch {
					case err == nil:
						created.Add(1)
					case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: tenant race-"):
						refused.Add(1)
					default:
						others.Add(1)
						t.Errorf("create in %s: %v", one.name, err)
					}
					if rand.IntN(2) == 0 { // any of the client's own
						deletePod(t.Context(), space, fmt.Sprintf("race-%d-%d", client, rand.IntN(i+1)))
					}
				}
			})
		}
	}
	clients.Wait()
	t.Logf("%d created, %d refused", created.Load(), refused.Load())
	if refused.Load() == 0 || created.Load() == 0 {
		t.Error("the clients did not race")
	}

	// Whatever is left, the deepest space comes to its own limit, and the others to what that leaves.
	for i := len(raceTree) - 1; i >= 0; i-- {
		space := b.space(t, raceTree[i].name)
		for n := range raceTree[0].pods {
			_, _ = space.CoreV1().Pods("default").Create(t.Context(), racePod(fmt.Sprintf("last-%d", n)), metav1.CreateOptions{}) // until it is refused
		}
	}
	eventually(t, func() error {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		return expect("pods on the host", seen.count("race-1"), raceTree[0].pods)
	})
	inSpaces := 0
	for _, one := range raceTree {
		pods, err := b.space(t, one.name).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		inSpaces += len(pods.Items)
	}
	if inSpaces != raceTree[0].pods {
		t.Errorf("%d pods in the spaces, want %d: those beyond are stuck", inSpaces, raceTree[0].pods)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, one := range raceTree {
		if seen.most[one.name] > one.pods {
			t.Errorf("tenant %s and those below had %d pods, at most %d are allowed", one.name, seen.most[one.name], one.pods)
		}
	}
}

func racePod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](0),
		Containers: []corev1.Container{{Name: "main", Image: "nginx", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")},
		}}},
	}}
}

func deletePod(ctx context.Context, space *cluster, name string) {
	_ = space.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}) // it may not exist
}
