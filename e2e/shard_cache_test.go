// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// cached returns how many objects of the host a shard caches of its own spaces, and of others.
func (p *shardProcess) cached(t *testing.T) (own, other int, err error) {
	t.Helper()
	code, text := fetch(t, p.socket(), "http://berth/metrics")
	if code != http.StatusOK {
		return 0, 0, fmt.Errorf("metrics: %d", code)
	}
	for label, value := range map[string]*int{"own": &own, "other": &other} {
		found := regexp.MustCompile(`(?m)^berth_host_cached_objects\{of="` + label + `"\} (\d+)$`).FindStringSubmatch(text)
		if found == nil {
			return 0, 0, fmt.Errorf("no objects of=%q in the metrics", label)
		}
		if *value, err = strconv.Atoi(found[1]); err != nil {
			return 0, 0, err
		}
	}
	return own, other, nil
}

// awaitCached waits until what a shard caches is as wanted.
func (p *shardProcess) awaitCached(t *testing.T, what string, wanted func(own, other int) bool) (own, other int) {
	t.Helper()
	eventually(t, func() (err error) {
		if own, other, err = p.cached(t); err == nil && !wanted(own, other) {
			err = fmt.Errorf("%s: %d own objects and %d others are cached", what, own, other)
		}
		return err
	})
	return own, other
}

// D5: what a shard has in its memory of the host is proportional to its own spaces. A space that moves finds its host objects on the other
// shard at once, also after that one restarts, and the first one keeps the addresses of its pods.
func TestAShardCachesItsOwnSpaces(t *testing.T) {
	t.Parallel()
	s := startShards(t, "caching", "has", "gets")
	has, gets := s.processes["has"], s.processes["gets"]
	s.create(t, "cache-moves", "has")
	s.create(t, "cache-stays", "gets")
	client := s.through(t, "gets", "cache-moves", "has")
	const services, pods = 30, 3
	for i := range services {
		client.serve(t, "default", &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("service-", i)},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "none"}, Ports: []corev1.ServicePort{{Port: 80}}},
		})
	}
	for i := range pods {
		client.run(t, "default", newPod(fmt.Sprint("pod-", i)))
	}
	for i := range pods {
		client.awaitRunning(t, "default", fmt.Sprint("pod-", i))
	}
	had, _ := has.awaitCached(t, "before the move", func(own, _ int) bool { return own >= services+pods })
	small, _ := gets.awaitCached(t, "of another shard's space", func(own, other int) bool { return own < services && other >= pods })

	s.move(t, "cache-moves", "gets")
	must(client.CoreV1().Pods("default").Get(t.Context(), "pod-0", metav1.GetOptions{}))(t)
	if own, _, err := gets.cached(t); err != nil || own < small+services+pods { // not only what the syncer's writes bring
		t.Errorf("when the space serves, %d own objects are cached, want %d (%v)", own, small+services+pods, err)
	}
	s.syncs(t, client, "Moved")
	gets.awaitCached(t, "after the move", func(own, _ int) bool { return own >= small+services+pods })
	has.awaitCached(t, "after the move", func(own, other int) bool { return own <= had-services-pods && other >= pods })

	gets.crash(t)
	gets.restart(t)
	s.awaitReady(t, "gets", "True")
	eventually(t, func() error {
		_, err := client.CoreV1().Pods("default").Get(t.Context(), "pod-0", metav1.GetOptions{})
		return err
	})
	s.syncs(t, client, "Restarted")
	gets.awaitCached(t, "after a restart", func(own, _ int) bool { return own >= small+services+pods })
}

// syncs fails unless the status of a host pod of a space reaches the tenant, and a host object that was deleted is made again.
func (s *shards) syncs(t *testing.T, client *cluster, reason string) {
	t.Helper()
	const namespace = "berth-cache-moves"
	name := func(objects []string, virtual string) string {
		for _, one := range objects {
			if strings.HasSuffix(one, "--"+virtual) {
				return one
			}
		}
		t.Fatalf("the host has no object of %s, but %v", virtual, objects)
		return ""
	}
	var objects []string
	for _, pod := range must(s.host.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{}))(t).Items {
		objects = append(objects, pod.Name)
	}
	s.host.kubectl(t, "patch", "pod", "--namespace", namespace, name(objects, "pod-0"), "--subresource=status", "--type=merge",
		"--patch", fmt.Sprintf(`{"status":{"reason":%q}}`, reason))
	objects = nil
	uids := map[string]types.UID{}
	for _, service := range must(s.host.CoreV1().Services(namespace).List(t.Context(), metav1.ListOptions{}))(t).Items {
		objects = append(objects, service.Name)
		uids[service.Name] = service.UID
	}
	deleted := name(objects, "service-0")
	if err := s.host.CoreV1().Services(namespace).Delete(t.Context(), deleted, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		pod, err := client.CoreV1().Pods("default").Get(t.Context(), "pod-0", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return expect("the reason in the status of the pod", pod.Status.Reason, reason)
	})
	eventually(t, func() error {
		service, err := s.host.CoreV1().Services(namespace).Get(t.Context(), deleted, metav1.GetOptions{})
		if err == nil && service.UID == uids[deleted] {
			err = fmt.Errorf("service %s is not deleted yet", deleted)
		}
		return err
	})
}
