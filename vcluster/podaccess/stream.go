// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podaccess

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiregistry "k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"

	"github.com/berth-dev/berth/internal/podstream"
	"github.com/berth-dev/berth/vcluster/requests"
)

// podStream serves exec, attach and port forwarding.
type podStream struct {
	upstreamStream
	registry    podGetter
	pods        Pods
	subresource string
}

type upstreamStream interface {
	apiregistry.Storage
	apiregistry.Connecter
}

// Connect returns what carries one call.
func (r podStream) Connect(ctx context.Context, name string, opts runtime.Object, responder apiregistry.Responder) (http.Handler, error) {
	reads, read := requests.Reading(ctx)
	if _, err := r.upstreamStream.Connect(reads, name, opts, responder); err != nil {
		return nil, err
	}
	read.End()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		call, host, err := r.begin(ctx, name, opts, req)
		if err != nil {
			responder.Error(err)
			return
		}
		call.Serve(w, req, host)
	}), nil
}

// begin has the host begin a stream. The pod, which may be large, is held no longer than that takes.
func (r podStream) begin(ctx context.Context, name string, opts runtime.Object, req *http.Request) (*podstream.Call, podstream.Host, error) {
	reads, read := requests.Reading(ctx)
	defer read.End()
	pod, err := r.registry.get(reads, name)
	if err != nil {
		return nil, nil, err
	}
	query, err := queryOf(opts, pod)
	if err != nil {
		return nil, nil, err
	}
	call, err := podstream.New(req, r.options(ctx, opts, pod.Name, pod.UID))
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	// The host is asked first: what it refuses is an answer, not a stream.
	host, err := r.pods.Stream(req.Context(), pod, r.subresource, call.Header(), query)
	return call, host, err
}

// said puts what the place where a pod runs says of it in the control plane's words. It reads the pod again: that happens
// seldom, and there may be many streams. The call may have ended: a stream that is cut says so.
func (r podStream) said(ctx context.Context, name string, uid types.UID, message string) string {
	reads, read := requests.Reading(context.WithoutCancel(ctx))
	defer read.End()
	pod, err := r.registry.get(reads, name)
	if err != nil || pod.UID != uid {
		return fmt.Sprintf("pod %q is not there any more", name)
	}
	return r.pods.Said(pod, message)
}

// options are those of a call, as they were checked.
func (r podStream) options(ctx context.Context, opts runtime.Object, name string, uid types.UID) podstream.Options {
	out := podstream.Options{Pod: name, Said: func(message string) string { return r.said(ctx, name, uid, message) }}
	switch o := opts.(type) {
	case *api.PodExecOptions:
		out.Stdin, out.Stdout, out.Stderr, out.TTY = o.Stdin, o.Stdout, o.Stderr, o.TTY
	case *api.PodAttachOptions:
		out.Stdin, out.Stdout, out.Stderr, out.TTY = o.Stdin, o.Stdout, o.Stderr, o.TTY
	case *api.PodPortForwardOptions:
		out.Forward = true
		for _, port := range o.Ports {
			if port < 1 || port > math.MaxUint16 {
				out.Ports = nil // those who need them there are refused
				return out
			}
			out.Ports = append(out.Ports, uint16(port))
		}
	}
	return out
}

// queryOf are the options of a call as a client would send them, with the
// container named. Nothing that was in the client's own query is in it.
func queryOf(opts runtime.Object, pod *corev1.Pod) (url.Values, error) {
	query, err := legacyscheme.ParameterCodec.EncodeParameters(opts, corev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	if _, forward := opts.(*api.PodPortForwardOptions); !forward && query.Get("container") == "" {
		if len(pod.Spec.Containers) == 0 {
			return nil, errors.New("internal error: a pod without containers")
		}
		query.Set("container", pod.Spec.Containers[0].Name)
	}
	return query, nil
}
