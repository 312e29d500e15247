// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podaccess

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistry "k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"
	podrest "k8s.io/kubernetes/pkg/registry/core/pod/rest"
	servicerest "k8s.io/kubernetes/pkg/registry/core/service"

	"github.com/berth-dev/berth/internal/podstream"
)

// Pods reaches the pods of a control plane where they run (S5). Errors are in
// the words of the control plane, as [k8s.io/apimachinery/pkg/api/errors] makes
// them: clients see them as they are.
type Pods interface {
	// Log reads pod's log, until ctx ends.
	Log(ctx context.Context, pod *corev1.Pod, query url.Values) (io.ReadCloser, error)
	// Stream begins an exec, attach or portforward, which ends with ctx.
	Stream(ctx context.Context, pod *corev1.Pod, subresource string, header http.Header, query url.Values) (podstream.Host, error)
	// Said is what the place where pod runs says of it in the middle of a stream,
	// in the words of the control plane.
	Said(pod *corev1.Pod, message string) string
	// Dial connects to a port of pod. The connection does not end with ctx.
	Dial(ctx context.Context, pod *corev1.Pod, port uint16) (net.Conn, error)
}

// Connected returns what serves a registry's calls by pods. Upstream's own
// registry checks each call as ever, but its way to a kubelet is not taken.
func Connected(s apiregistry.Storage, pods Pods) apiregistry.Storage {
	switch s := s.(type) {
	case *podrest.LogREST:
		s.KubeletConn = noKubelet{}
		return podLog{s, podGetter{s.Store}, pods}
	case *podrest.ExecREST:
		s.KubeletConn = noKubelet{}
		return podStream{s, podGetter{s.Store}, pods, "exec"}
	case *podrest.AttachREST:
		s.KubeletConn = noKubelet{}
		return podStream{s, podGetter{s.Store}, pods, "attach"}
	case *podrest.PortForwardREST:
		s.KubeletConn = noKubelet{}
		return podStream{s, podGetter{s.Store}, pods, "portforward"}
	case *podrest.ProxyREST:
		return podProxy{s}
	case *servicerest.ProxyREST:
		return podProxy{s}
	}
	return s
}

// noKubelet is all kubelets: none is asked.
type noKubelet struct{}

func (noKubelet) GetConnectionInfo(context.Context, types.NodeName) (*kubeletclient.ConnectionInfo, error) {
	return &kubeletclient.ConnectionInfo{Scheme: "https", Hostname: "kubelet.invalid", Port: "0", Transport: noKubelet{}}, nil
}

func (noKubelet) RoundTrip(*http.Request) (*http.Response, error) { return nil, errUnreachable }

// podGetter reads pods of the store.
type podGetter struct{ store apiregistry.Getter }

func (g podGetter) get(ctx context.Context, name string) (*corev1.Pod, error) {
	obj, err := g.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	stored, ok := obj.(*api.Pod)
	if !ok {
		return nil, errors.New("internal error: the registry of pods holds something else")
	}
	pod := &corev1.Pod{}
	return pod, legacyscheme.Scheme.Convert(stored, pod, nil)
}
