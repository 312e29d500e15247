// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/vcluster"
)

// T2: spaces share handlers, so requests of several at once must each meet their
// own space's storage, admission, accounts, addresses and tokens.
func TestRequestsOfSpacesAtOnceDoNotMeet(t *testing.T) {
	const spaces, rounds = 3, 25
	clients := map[string]*kubernetes.Clientset{}
	planes := map[string]*vcluster.ControlPlane{}
	for i := range spaces {
		name := fmt.Sprint("meet-", i)
		p := start(t, config(t, name))
		account(t, p, "default", "default")
		planes[name], clients[name] = p, clientset(t, p.Loopback())
	}
	var wg sync.WaitGroup
	for name, client := range clients {
		for worker := range 3 {
			wg.Go(func() {
				for round := range rounds {
					// The same names in all spaces.
					object := fmt.Sprintf("w%d-%d", worker, round)
					if err := meetNobody(t.Context(), client, name, object); err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	for name, client := range clients {
		maps, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{LabelSelector: "mine"})
		if err != nil {
			t.Fatal(err)
		}
		if len(maps.Items) != 3*rounds {
			t.Errorf("%s holds %d of its objects", name, len(maps.Items))
		}
		for _, m := range maps.Items {
			if m.Data["space"] != name {
				t.Errorf("%s holds an object of %s", name, m.Data["space"])
			}
		}
	}
	checkTokens(t, clients)
}

// meetNobody does what reaches each kind of what is a space's own.
func meetNobody(ctx context.Context, client kubernetes.Interface, space, object string) error {
	maps := client.CoreV1().ConfigMaps("default")
	w, err := maps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + object})
	if err != nil {
		return err
	}
	defer w.Stop()
	labels := map[string]string{"mine": space}
	made, err := maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: object, Labels: labels}, Data: map[string]string{"space": space},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	select {
	case event := <-w.ResultChan():
		if seen, ok := event.Object.(*corev1.ConfigMap); !ok || seen.UID != made.UID {
			return fmt.Errorf("watched %v", event)
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	// All spaces hand out the same address, which each may once.
	service, err := client.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: object, Labels: labels},
		Spec:       corev1.ServiceSpec{ClusterIP: addressOf(object), Ports: []corev1.ServicePort{{Port: 1}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := client.CoreV1().Services("default").Delete(ctx, service.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	_, err = client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"}},
	}, metav1.CreateOptions{})
	return err
}

// addressOf is an address of the service range, another for each name.
func addressOf(object string) string {
	var worker, round int
	_, _ = fmt.Sscanf(object, "w%d-%d", &worker, &round)
	return fmt.Sprintf("10.96.%d.%d", worker+1, round+1)
}

// checkTokens asks each space about each's token.
func checkTokens(t *testing.T, clients map[string]*kubernetes.Clientset) {
	t.Helper()
	for of, client := range clients {
		issued, err := client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default",
			&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for at, other := range clients {
			review, err := other.AuthenticationV1().TokenReviews().Create(t.Context(),
				&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: issued.Status.Token}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if review.Status.Authenticated != (at == of) {
				t.Errorf("a token of %s at %s: authenticated %v %s", of, at, review.Status.Authenticated, strings.TrimSpace(review.Status.Error))
			}
		}
	}
}
