// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	protocol "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	cri "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// How long a stream may be idle, and how long a client may take to open its
// parts: as long as kubelets allow.
const (
	streamIdle     = 4 * time.Hour
	streamCreation = protocol.DefaultStreamCreationTimeout
)

// process is one call of exec or attach: what runs, as it is reached on the host.
// It is served as a kubelet does, with upstream's code; so what the host says on
// the stream of errors is read here, and put into the space's words.
type process struct {
	pods    Pods
	pod     *corev1.Pod
	session httpstream.Connection
	cri.Options
}

// streamsOf are the streams that a client asks for.
func streamsOf(opts runtime.Object) cri.Options {
	switch o := opts.(type) {
	case *api.PodExecOptions:
		return cri.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr && !o.TTY, TTY: o.TTY}
	case *api.PodAttachOptions:
		return cri.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr && !o.TTY, TTY: o.TTY}
	}
	return cri.Options{}
}

// ServeHTTP serves a client in the protocol that it speaks.
func (p process) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		p.serveV5(w, r)
		return
	}
	cri.ServeExec(w, r, p, p.pod.Name, string(p.pod.UID), "", nil, &p.Options, streamIdle, streamCreation, cri.SupportedStreamingProtocols)
}

// ExecInContainer implements [cri.Executor].
func (p process) ExecInContainer(
	ctx context.Context, _, _, _ string, _ []string, in io.Reader, out, errOut io.WriteCloser, _ bool, resize <-chan cri.TerminalSize, _ time.Duration,
) error {
	return p.run(ctx, in, out, errOut, resized(resize))
}

// run connects a client's streams to those of the host, until the process ends.
func (p process) run(ctx context.Context, in io.Reader, out, errOut io.Writer, resize remotecommand.TerminalSizeQueue) error {
	opened := &openedSession{Connection: p.session}
	executor, err := remotecommand.NewSPDYExecutorForProtocols(
		opened, spdy.NewUpgraderForStreaming(opened), http.MethodPost, &url.URL{Scheme: "https", Host: "pod"}, protocol.StreamProtocolV4Name)
	if err != nil {
		return err
	}
	o := remotecommand.StreamOptions{Tty: p.TTY}
	if p.Stdin {
		o.Stdin = in
	}
	if p.Stdout {
		o.Stdout = out
	}
	if p.Stderr {
		o.Stderr = errOut
	}
	if p.TTY {
		o.TerminalSizeQueue = resize
	}
	err = executor.StreamWithContext(ctx, o)
	var exit exec.CodeExitError
	switch {
	case errors.As(err, &exit):
		return err
	case err == nil && opened.told.Load():
		return nil
	case err == nil: // to upstream's client, an end without a word is a good one
		return errors.New("the connection to the container has ended")
	}
	message := err.Error()
	for _, said := range []string{"Internal error occurred: ", "error executing command in container: ", "error attaching to container: "} {
		message = strings.TrimPrefix(message, said) // which is said here as well
	}
	return errors.New(p.pods.Said(p.pod, message))
}

// serveV5 serves the version of which container runtimes have no server.
func (p process) serveV5(w http.ResponseWriter, r *http.Request) {
	channels := make([]wsstream.ChannelType, protocol.StreamResize+1)
	for i, t := range map[int]struct {
		is   bool
		kind wsstream.ChannelType
	}{
		protocol.StreamStdIn: {p.Stdin, wsstream.ReadChannel}, protocol.StreamStdOut: {p.Stdout, wsstream.WriteChannel},
		protocol.StreamStdErr: {p.Stderr, wsstream.WriteChannel}, protocol.StreamErr: {true, wsstream.WriteChannel},
		protocol.StreamResize: {p.TTY, wsstream.ReadChannel},
	} {
		if t.is {
			channels[i] = t.kind
		}
	}
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{protocol.StreamProtocolV5Name: {Binary: true, Channels: channels}})
	conn.SetIdleTimeout(streamIdle)
	_, parts, err := conn.Open(w, r)
	if err != nil {
		return // the client has been told
	}
	defer func() { _ = conn.Close() }()
	// An empty message tells clients that the connection is there.
	first := parts[protocol.StreamErr]
	if p.Stdout {
		first = parts[protocol.StreamStdOut]
	}
	if _, err := first.Write(nil); err != nil {
		return
	}
	err = p.run(r.Context(), parts[protocol.StreamStdIn], parts[protocol.StreamStdOut], parts[protocol.StreamStdErr], readSizes{json.NewDecoder(parts[protocol.StreamResize])})
	text, err := json.Marshal(ended(err))
	if err != nil {
		return
	}
	_, _ = parts[protocol.StreamErr].Write(text)
}

// ended is how clients are told that a process has ended.
func ended(err error) metav1.Status {
	var exit exec.CodeExitError
	switch {
	case err == nil:
		return metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &exit):
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: protocol.NonZeroExitCodeReason, Message: "command terminated with non-zero exit code: " + exit.Error(),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: protocol.ExitCodeCauseType, Message: strconv.Itoa(exit.Code)}}},
		}
	}
	return apierrors.NewInternalError(fmt.Errorf("error executing command in container: %w", err)).ErrStatus
}

// openedSession gives upstream's client a session that is open already, and
// notes whether the host said how it went.
type openedSession struct {
	httpstream.Connection
	told atomic.Bool
}

// RoundTrip answers as the host has.
func (s *openedSession) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusSwitchingProtocols, Request: r, Body: http.NoBody,
		Header: http.Header{httpstream.HeaderProtocolVersion: {protocol.StreamProtocolV4Name}},
	}, nil
}

// NewConnection implements [httpstream.UpgradeRoundTripper].
func (s *openedSession) NewConnection(*http.Response) (httpstream.Connection, error) { return s, nil }

// CreateStream implements [httpstream.Connection].
func (s *openedSession) CreateStream(headers http.Header) (httpstream.Stream, error) {
	stream, err := s.Connection.CreateStream(headers)
	if err == nil && headers.Get(corev1.StreamType) == corev1.StreamTypeError {
		stream = errorStream{stream, io.LimitReader(stream, maxSaid), &s.told}
	}
	return stream, err
}

// maxSaid bounds what the host may say of how it went, in bytes.
const maxSaid = 64 << 10

type errorStream struct {
	httpstream.Stream
	bounded io.Reader
	told    *atomic.Bool
}

func (s errorStream) Read(p []byte) (int, error) {
	n, err := s.bounded.Read(p)
	if n > 0 {
		s.told.Store(true)
	}
	return n, err
}

// resized are the sizes of a terminal, as container runtimes' server tells them.
type resized <-chan cri.TerminalSize

// Next implements [remotecommand.TerminalSizeQueue].
func (c resized) Next() *remotecommand.TerminalSize {
	size, ok := <-c
	if !ok {
		return nil
	}
	return &remotecommand.TerminalSize{Width: size.Width, Height: size.Height}
}

// readSizes are the sizes of a terminal, as clients write them.
type readSizes struct{ *json.Decoder }

// Next implements [remotecommand.TerminalSizeQueue].
func (d readSizes) Next() *remotecommand.TerminalSize {
	size := &remotecommand.TerminalSize{}
	if d.Decode(size) != nil {
		return nil
	}
	return size
}
