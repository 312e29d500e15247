// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testruntime

import (
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// Runtime does what upstream's servers of streams ask of a container runtime.
type Runtime struct {
	// Dir is where commands run.
	Dir string
	// Says puts a failure of its own in its words.
	Says func(failure error) error

	mu    sync.Mutex
	sizes []remotecommand.TerminalSize
}

// ExecInContainer runs a command of this machine, or "broken", which it fails to,
// or "deaf", which reads nothing until its client has gone.
func (r *Runtime) ExecInContainer(
	ctx context.Context, _, _, _ string, cmd []string, in io.Reader, out, errOut io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	if resize != nil {
		go r.note(resize)
	}
	switch cmd[0] {
	case "broken":
		return r.Says(errors.New("no such container"))
	case "deaf":
		<-ctx.Done()
		return nil
	}
	c := exec.CommandContext(ctx, cmd[0], cmd[1:]...)
	c.Dir, c.Stdin = r.Dir, in
	if out != nil {
		c.Stdout = out
	}
	if errOut != nil {
		c.Stderr = errOut
	}
	err := c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}

func (r *Runtime) note(resize <-chan remotecommand.TerminalSize) {
	for size := range resize {
		r.mu.Lock()
		r.sizes = append(r.sizes, size)
		r.mu.Unlock()
	}
}

// Sizes are those that terminals have had.
func (r *Runtime) Sizes() []remotecommand.TerminalSize {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sizes)
}

// PortForward connects to a port of this machine.
func (r *Runtime) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return r.Says(err)
	}
	defer func() { _ = conn.Close() }()
	go func() {
		_, _ = io.Copy(conn, stream)
		_ = conn.(*net.TCPConn).CloseWrite() // as the client has ended
	}()
	_, err = io.Copy(stream, conn)
	return err
}
