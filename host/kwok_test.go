// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"net"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/kwok/pkg/utils/informer"
)

// kwok was written to end with its process. Here it ends in the midst of work
// that fails: nobody serves its API.
func TestKwokStopsWithoutLeavingAGoroutine(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: nobody, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	nodes := newNodes(2)
	quiet := klog.NewContext(t.Context(), klog.New(nil))
	for range 20 {
		k, err := startKwok(quiet, client, nodes, newAddresses(nodes, known))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		fed := make(chan struct{})
		go func() {
			defer close(fed)
			for i := 0; ctx.Err() == nil; i++ {
				n := nodes[i%len(nodes)]
				k.feedNode(ctx, informer.Modified, n.object())
				pod := newPod(fmt.Sprintf("pod-%d", i))
				pod.ObjectMeta = metav1.ObjectMeta{Name: pod.Name, Namespace: "default", UID: types.UID(pod.Name)}
				pod.Spec.NodeName = n.name
				pod.Status.Phase = corev1.PodPending
				k.feedPod(ctx, informer.Added, pod)
				if i == 10 {
					cancel()
				}
			}
		}()
		<-fed
		k.stop()
	}
}
