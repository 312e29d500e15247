// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/berth-dev/berth/vcluster/gate"
)

// L3: a webhook that refused the pods of 50 ReplicaSets with 3 MiB each had the recorder of their events keep 3 GiB.
func TestHostileErrorsReachControllersShortened(t *testing.T) {
	long := strings.Repeat("x", 3<<20)
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New(long))
	refused.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Message: long[:500_000]}}
	for name, h := range map[string]http.HandlerFunc{
		"status": func(w http.ResponseWriter, r *http.Request) {
			responsewriters.ErrorNegotiated(refused, scheme.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
		},
		"text": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, long, http.StatusForbidden) },
	} {
		g := gate.New()
		g.Open(h)
		for _, accept := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
			c := Config(&Transport{g}, "token")
			c.AcceptContentTypes = accept
			client, err := kubernetes.NewForConfig(c)
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{}, metav1.CreateOptions{})
			if !apierrors.IsForbidden(err) || len(err.Error()) > 2*shortError {
				t.Errorf("%s as %s: %d bytes: %.100v", name, accept, len(err.Error()), err)
			}
			if name == "status" && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				t.Errorf("%s as %s: the cause is lost: %.100v", name, accept, err)
			}
		}
		g.Close(time.Minute)
	}
}
