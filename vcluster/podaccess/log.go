// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podaccess

import (
	"context"
	"fmt"
	"io"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistry "k8s.io/apiserver/pkg/registry/rest"
	api "k8s.io/kubernetes/pkg/apis/core"
	podrest "k8s.io/kubernetes/pkg/registry/core/pod/rest"

	"github.com/berth-dev/berth/vcluster/requests"
)

// podLog serves logs.
type podLog struct {
	*podrest.LogREST
	registry podGetter
	pods     Pods
}

// Get returns what streams the log. What was read for it is held until the stream begins.
func (r podLog) Get(ctx context.Context, name string, opts runtime.Object) (runtime.Object, error) {
	ctx, read := requests.Reading(ctx)
	stream, err := r.stream(ctx, name, opts, read.End)
	if _, begins := stream.(*logStream); !begins {
		read.End()
	}
	return stream, err
}

func (r podLog) stream(ctx context.Context, name string, opts runtime.Object, begun func()) (runtime.Object, error) {
	checked, err := r.LogREST.Get(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	pod, err := r.registry.get(ctx, name)
	if err != nil {
		return nil, err
	}
	if pod.Spec.NodeName == "" {
		return checked, nil // nothing to read from, which upstream's streams
	}
	o, ok := opts.(*api.PodLogOptions)
	if !ok {
		return nil, fmt.Errorf("invalid options object: %#v", opts)
	}
	o = o.DeepCopy()
	// Whether kubelets prove who they are is the platform's to say.
	o.InsecureSkipTLSVerifyBackend = false
	if o.Stream != nil && *o.Stream == api.LogStreamAll {
		o.Stream = nil // the default, which a server without the feature refuses to be told
	}
	query, err := queryOf(o, pod)
	if err != nil {
		return nil, err
	}
	return &logStream{Pod: pod, pods: r.pods, query: query, follow: o.Follow, begun: begun}, nil
}

// logStream is a log that is read when it is served.
type logStream struct {
	*corev1.Pod // has it be an object, as upstream's own streamer is

	pods   Pods
	query  url.Values
	follow bool
	begun  func() // gives back what was read
}

var _ apiregistry.ResourceStreamer = &logStream{}

// InputStream implements [apiregistry.ResourceStreamer].
func (s *logStream) InputStream(ctx context.Context, _, _ string) (io.ReadCloser, bool, string, error) {
	log, err := s.pods.Log(ctx, s.Pod, s.query)
	s.Pod = nil // which may be large, and the log long
	s.begun()
	if err != nil {
		return nil, false, "", err
	}
	return lateEnd{log}, s.follow, "text/plain", nil
}

// lateEnd tells of the end of a stream by a read of its own. Upstream's WebSocket copy drops what it reads together with
// the end, as clients of HTTP/2 and of bodies of known length do.
type lateEnd struct{ io.ReadCloser }

func (l lateEnd) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}
