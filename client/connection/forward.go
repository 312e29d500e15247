// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	streamhttp "k8s.io/streaming/pkg/httpstream"

	"github.com/berth-dev/berth/internal/safego"
)

// Forwarding is a port of this machine that leads to a pod.
type Forwarding struct {
	// Port of this machine.
	Port uint16
	stop func()
	done chan struct{}
	err  error
}

// Forward opens a port of this machine, chosen by the system, that leads to an endpoint until it is closed.
func Forward(host *rest.Config, to Endpoint) (*Forwarding, error) {
	dialer, err := dialerTo(host, to)
	if err != nil {
		return nil, fmt.Errorf("forward a port to pod %s: %w", to.Pod, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	opened := make(chan struct{})
	forwarder, err := portforward.NewOnAddressesForStreamingWithContext(ctx, dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", to.Port)}, opened, io.Discard, io.Discard)
	if err != nil {
		stop()
		return nil, fmt.Errorf("forward a port to pod %s: %w", to.Pod, err)
	}
	f := &Forwarding{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		f.err = safego.Call("forward a port", forwarder.ForwardPorts)
	}()
	select {
	case <-opened:
	case <-f.done:
		stop()
		return nil, fmt.Errorf("forward a port to pod %s: %w", to.Pod, errors.Join(f.err, errEnded(f.err)))
	}
	ports, err := forwarder.GetPorts()
	if err != nil || len(ports) != 1 {
		f.Close()
		return nil, fmt.Errorf("forward a port to pod %s: no port is open: %w", to.Pod, err)
	}
	f.Port = ports[0].Local
	return f, nil
}

func errEnded(err error) error {
	if err == nil {
		return errors.New("the connection has ended")
	}
	return nil
}

// Done is closed when the forwarding ends by itself, such as when the pod ends.
func (f *Forwarding) Done() <-chan struct{} { return f.done }

// Close ends the forwarding, and waits until it has.
func (f *Forwarding) Close() {
	f.stop()
	<-f.done
}

// dialerTo prefers WebSockets, as kubectl does, and falls back to SPDY for hosts and proxies that don't support them.
func dialerTo(host *rest.Config, to Endpoint) (streamhttp.Dialer, error) {
	clientset, err := kubernetes.NewForConfig(host)
	if err != nil {
		return nil, err
	}
	url := clientset.CoreV1().RESTClient().Post().Resource("pods").Namespace(to.Pod.Namespace).Name(to.Pod.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(host)
	if err != nil {
		return nil, err
	}
	fallback := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, host)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialerForStreaming(tunnel, fallback, func(err error) bool {
		return streamhttp.IsUpgradeFailure(err) || streamhttp.IsHTTPSProxyError(err)
	}), nil
}
